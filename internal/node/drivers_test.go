package node

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestNewDriver_ValidFlags_ReturnsTheChosenDriver(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Driver{"exec": &Exec{}, "http": &HTTP{}, "sim": &Sim{}} {
		f := DriverFlags{Driver: name, ExecFlags: ExecFlags{Exec: "cat"}, HTTPFlags: HTTPFlags{HTTPURL: "http://127.0.0.1:1"}}
		d, err := NewDriver(f, berth.NodeSpec{ID: "n"}, slog.New(slog.DiscardHandler))
		require.NoError(t, err, name)
		require.IsType(t, want, d)
	}
	require.Equal(t, []string{"exec", "http", "sim"}, DriverNames())
}

func TestNewDriver_WrongFlags_ErrorNamesTheFlag(t *testing.T) {
	t.Parallel()
	openAI := HTTPFlags{HTTPURL: "http://127.0.0.1:1", HTTPOpenAI: true}
	withModel := openAI
	withModel.Model = "m"
	for _, c := range []struct {
		flags DriverFlags
		kind  berth.NodeKind
		want  string
	}{
		{DriverFlags{Driver: "parrot"}, berth.NodeTranslate, "--driver"},
		{DriverFlags{Driver: "exec"}, berth.NodeTranslate, "--exec"},
		{DriverFlags{Driver: "http", HTTPFlags: HTTPFlags{HTTPURL: "x"}}, berth.NodeTranslate, "--http-url"},
		{DriverFlags{Driver: "http", HTTPFlags: openAI}, berth.NodeTranslate, "--model"},
		{DriverFlags{Driver: "http", HTTPFlags: withModel}, berth.NodeEngine, "--http-openai"},
		{DriverFlags{Driver: "sim", SimFlags: SimFlags{SimFailEvery: -1}}, berth.NodeTranslate, "--sim-fail-every"},
	} {
		_, err := NewDriver(c.flags, berth.NodeSpec{ID: "n", Kind: c.kind}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, c.want)
	}
}

func TestNewDriver_Exec_CommandsSeeNoSecrets(t *testing.T) {
	for _, name := range []string{"BERTH_TOKEN", "BERTH_AUTH_SECRET", "BERTH_NODE_HTTP_KEY", "BERTH_TEMPORAL_API_KEY", "BERTH_PAYLOAD_KEYS"} {
		t.Setenv(name, "hidden")
	}
	t.Setenv("BERTH_OTHER", "shown")
	d, err := NewDriver(DriverFlags{Driver: "exec", ExecFlags: ExecFlags{Exec: "env"}}, berth.NodeSpec{ID: "n"}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	out, err := d.Translate(t.Context(), segment)
	require.NoError(t, err)
	require.NotContains(t, out.Text, "hidden")
	require.Contains(t, out.Text, "BERTH_OTHER=shown")
}
