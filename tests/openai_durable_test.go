package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testprovider"
)

// newDurable returns a stack with a model m of one upstream of a provider, and a key whose calls are durable.
func newDurable(t *testing.T, settings ...string) (*stack, *testprovider.Server, *keyHolder) {
	t.Helper()
	provider := testprovider.Start(t)
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
providers: {p: {baseURL: "`+provider.URL+`"}}
models: {m: {provider: p, cap: 2, maxOutputTokens: 1000, credits: {input: 10, output: 100}}}
routes: {default: {paid: m, free: m}}
`), 0o600))
	s := newStack(t, with(append([]string{"BERTH_ROUTING_FILE=" + file, "BERTH_CALL_HOLD=1s"}, settings...)...))
	return s, provider, s.newKeyHolder(t, "research")
}

// O1, O9: a durable call has the same answer as a direct one.
func TestOpenAI_DurableCall_Answered(t *testing.T) {
	t.Parallel()
	s, provider, c := newDurable(t)
	for _, stream := range []bool{false, true} {
		status, text, err := c.whole(t.Context(), s.httpAddr, stream)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, testprovider.Text)
		require.Equal(t, stream, strings.HasSuffix(text, "data: [DONE]\n\n"), text)
	}
	require.EqualValues(t, 2, provider.Calls.Load())
}
