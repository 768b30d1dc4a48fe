package node

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/secret"
)

// The secrets are of these tests only.
const (
	oneSecret     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	anotherSecret = "whsec_YmVydGggdGVzdHMgdXNlIHRoaXMgb25l"
)

// FA12: each call of the http driver is signed; a receiver with one of the secrets accepts it, and no changed one. A file of secrets is
// read for each call.
func TestHTTP_Secret_CallsAreSigned(t *testing.T) {
	t.Parallel()
	type call struct {
		header http.Header
		body   []byte
	}
	calls := make(chan call, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		calls <- call{r.Header, b}
		_ = json.NewEncoder(w).Encode(berth.JobOutput{Text: "x"})
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "secrets")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(oneSecret + "\n")
	driver := func(f HTTPFlags) Driver {
		f.HTTPURL = secret.Address(server.URL)
		d, err := NewDriver(DriverFlags{Driver: "http", HTTPFlags: f}, berth.NodeSpec{Kind: berth.NodeTranslate}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		t.Cleanup(d.(*HTTP).Close) //nolint:errcheck // the http driver
		return d
	}
	translated := func(d Driver, in berth.JobInput) call {
		_, err := d.Translate(t.Context(), in)
		require.NoError(t, err)
		return <-calls
	}
	accepted := func(c call, secret string) bool {
		verifier, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		return verifier.Verify(c.body, c.header) == nil
	}
	byFile := driver(HTTPFlags{HTTPSecretFile: file})
	for name, d := range map[string]Driver{"setting": driver(HTTPFlags{HTTPSecrets: []secret.Text{oneSecret}}), "file": byFile} {
		c := translated(d, segment)
		require.True(t, accepted(c, oneSecret), name)
		require.False(t, accepted(c, anotherSecret), name)
		c.body = append(c.body, ' ')
		require.False(t, accepted(c, oneSecret), name)
	}
	write(anotherSecret + "\r\n\n" + oneSecret)
	c := translated(byFile, segment)
	require.True(t, accepted(c, oneSecret))
	require.True(t, accepted(c, anotherSecret))
	id := c.header.Get("webhook-id")
	require.Regexp(t, `^msg_[0-9a-f]{32}$`, id)
	require.Equal(t, id, translated(byFile, segment).header.Get("webhook-id"), "the same dispatch")
	again := segment
	again.Dispatch++
	require.NotEqual(t, id, translated(byFile, again).header.Get("webhook-id"))
	require.Empty(t, translated(driver(HTTPFlags{}), segment).header.Get("webhook-signature"))

	require.NoError(t, os.Remove(file))
	_, err := byFile.Translate(t.Context(), segment)
	require.Equal(t, berth.CodeNodeFailed, berth.CodeOf(err))
	require.NotContains(t, err.Error(), "whsec")
}

func TestNewDriver_InvalidSecret_FlagNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for want, f := range map[string]HTTPFlags{
		"BERTH_NODE_HTTP_SECRET: invalid secret":                                      {HTTPSecrets: []secret.Text{"whsec_c2hvcnQ="}},
		"BERTH_NODE_HTTP_SECRET_FILE: the secret cannot be read: the file is empty":   {HTTPSecretFile: file},
		"BERTH_NODE_HTTP_SECRET_FILE: the secret cannot be read: open " + file + "x":  {HTTPSecretFile: file + "x"},
		"set one of BERTH_NODE_HTTP_SECRET and BERTH_NODE_HTTP_SECRET_FILE, not both": {HTTPSecretFile: file, HTTPSecrets: []secret.Text{oneSecret}},
		"--http-secret, --http-secret-file: servers of the chat completions protocol": {HTTPSecrets: []secret.Text{oneSecret}, HTTPOpenAI: true, Model: "m"},
	} {
		f.HTTPURL = "http://127.0.0.1:1"
		_, err := NewDriver(DriverFlags{Driver: "http", HTTPFlags: f}, berth.NodeSpec{Kind: berth.NodeTranslate}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "c2hvcnQ")
	}
}
