package config_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	longSecret  = "01234567890123456789012345678901"
	otherSecret = "abcdefghijabcdefghijabcdefghijab"
)

// secretFile returns a file with a secret.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// secrets are the settings of secrets that can be in a file, with a valid value.
var secrets = []struct{ flag, env, value string }{
	{"redis-password", "BERTH_REDIS_PASSWORD", "p"},
	{"redis-sentinel-password", "BERTH_REDIS_SENTINEL_PASSWORD", "p"},
	{"database", "BERTH_DATABASE", "postgres://u:p@h/d"},
	{"auth-secret", "BERTH_AUTH_SECRET", longSecret},
	{"deepseek-api-key", "DEEPSEEK_API_KEY", "k"},
	{"zhipuai-api-key", "ZHIPUAI_API_KEY", "k"},
	{"provider-keys", "BERTH_PROVIDER_KEYS", "OPENAI_API_KEY=k"},
	{"record-secrets", "BERTH_RECORD_SECRETS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
}

func TestConfig_SecretFiles_EachIsCheckedUnderItsName(t *testing.T) { // FM6
	t.Parallel()
	files := []struct{ flag, env, value string }{{"database-password", "BERTH_DATABASE_PASSWORD", "p"}}
	for _, s := range append(files, secrets...) {
		t.Run(s.env, func(t *testing.T) {
			t.Parallel()
			with := func(args ...string) error {
				_, err := tryParse(t, append([]string{"--record-url=https://host.test"}, args...)...)
				return err
			}
			var base []string
			if s.flag != "record-secrets" {
				base = []string{"--record-secrets=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
			}
			if s.flag == "database-password" {
				base = append(base, "--database=postgres://u@h/d")
			}
			require.NoError(t, with(append(base, "--"+s.flag+"-file="+secretFile(t, s.value+"\r\n"))...))
			for problem, path := range map[string]string{
				"no such file": filepath.Join(t.TempDir(), "none"), "is empty": secretFile(t, ""), "regular file": t.TempDir(), "UTF-8": secretFile(t, "\xff"),
			} {
				err := with(append(base, "--"+s.flag+"-file="+path)...)
				require.ErrorContains(t, err, s.env+"_FILE", problem)
				require.ErrorContains(t, err, "--"+s.flag+"-file", problem)
				require.ErrorContains(t, err, problem)
			}
			if s.flag == "database-password" {
				return
			}
			err := with(append(base, "--"+s.flag+"="+s.value, "--"+s.flag+"-file="+secretFile(t, s.value))...)
			require.ErrorContains(t, err, "set one of "+s.env+" and "+s.env+"_FILE, not both")
			require.NotContains(t, err.Error(), s.value+" ", "the value is not shown")
		})
	}
}

func TestConfig_AuthSecretFile_RotatesWithinASecond(t *testing.T) { // FM6
	t.Parallel()
	file := secretFile(t, longSecret+"\n")
	c := parse(t, "--auth-secret-file="+file)
	require.NoError(t, c.NeedSecret())
	require.Equal(t, longSecret, c.Identity.Secret())
	var log bytes.Buffer
	source, err := c.Identity.Source(slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	becomes := func(text string, done func(secrets []string) bool) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Eventually(t, func() bool { return done(source.Current()) }, 10*time.Second, 10*time.Millisecond)
	}
	becomes(otherSecret+"\n"+longSecret, func(s []string) bool { return len(s) == 2 && s[0] == otherSecret })
	becomes("short", func([]string) bool {
		return strings.Contains(log.String(), "BERTH_AUTH_SECRET_FILE: must have at least 32 bytes, got 5")
	})
	require.Len(t, source.Current(), 2, "the last secrets stay in use")
	becomes(otherSecret, func(s []string) bool { return len(s) == 1 })

	require.ErrorContains(t, parseInvalid(t, "--auth-secret-file="+secretFile(t, "short")), "BERTH_AUTH_SECRET_FILE")
}

func parseInvalid(t *testing.T, args ...string) error {
	t.Helper()
	_, err := tryParse(t, args...)
	require.Error(t, err)
	return err
}

func TestPrint_SecretFiles_PathsAreShown(t *testing.T) { // FM6
	t.Parallel()
	c := parse(t, "--database-file="+secretFile(t, "postgres://u:hidden@h/d"), "--provider-keys-file="+secretFile(t, "# none\nA_KEY=hidden\n"))
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	require.NotContains(t, out.String(), "hidden@")
	require.Regexp(t, `BERTH_DATABASE_FILE +/\S+/secret`, out.String())
	require.Regexp(t, `BERTH_PROVIDER_KEYS_FILE +/\S+/secret`, out.String())
}
