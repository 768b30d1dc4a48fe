package config_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/config"
	"berth/internal/identity"
)

const payloadKeys = "a:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

func parse(t *testing.T, args ...string) config.Config {
	t.Helper()
	c, err := tryParse(t, args...)
	require.NoError(t, err)
	return c
}

func tryParse(t *testing.T, args ...string) (config.Config, error) {
	t.Helper()
	var c struct {
		config.Config `embed:""`
	}
	p, err := kong.New(&c, config.Clean())
	require.NoError(t, err)
	_, err = p.Parse(args)
	return c.Config, config.Explain(err, args)
}

func TestConfig_Defaults_AreValid(t *testing.T) { // T28
	t.Parallel()
	c := parse(t)
	require.NoError(t, c.Validate())
	require.EqualValues(t, 300_000, c.Worker.LockTimeoutMs)
	require.EqualValues(t, 400, c.Stream.FlushIntervalMs)
	require.Equal(t, 8, c.Stream.FlushSize)
	require.ErrorContains(t, c.NeedSecret(), "BERTH_AUTH_SECRET")
}

func TestConfig_UnprefixedVariables_AreAccepted(t *testing.T) { // T28
	for name, value := range map[string]string{
		"WORKER_TIMEOUT_MS": "1", "CONCURRENCY_LOCK_TIMEOUT_MS": "2", "QUEUE_MAX_SIZE": "3", "STREAM_FLUSH_INTERVAL_MS": "4",
		"STREAM_FLUSH_SIZE": "5", "STREAM_TTL_SECONDS": "6", "STREAM_TRIM_MAXLEN": "7", "LLM_DEBUG": "true",
		"DEEPSEEK_API_KEY": "d", "ZHIPUAI_API_KEY": "z",
	} {
		t.Setenv(name, value)
	}
	c := parse(t)
	require.NoError(t, c.Validate())
	require.EqualValues(t, 1, c.Worker.TimeoutMs)
	require.EqualValues(t, 2, c.Worker.LockTimeoutMs)
	require.Equal(t, 3, c.API.QueueMaxSize)
	require.EqualValues(t, 4, c.Stream.FlushIntervalMs)
	require.Equal(t, 5, c.Stream.FlushSize)
	require.EqualValues(t, 6, c.Stream.TTLSeconds)
	require.EqualValues(t, 7, c.Stream.TrimMaxLen)
	require.True(t, c.Model.Debug)
	require.Equal(t, "d", string(c.Model.DeepSeekKey))
	require.Equal(t, "z", string(c.Model.ZhipuKey))
}

func TestConfig_InvalidSetting_ErrorNamesVariable(t *testing.T) { // X6
	t.Parallel()
	for name, args := range map[string][]string{
		"BERTH_TEMPORAL_ADDR": {"--temporal-addr=nowhere"},
		"BERTH_HTTP_ADDR":     {"--http-addr=8080"},
		"BERTH_REDIS_ADDR":    {"--redis-addr=x"},
		"BERTH_CELL":          {"--cell={a}"},
		"BERTH_DATABASE":      {"--database=mysql://x"},

		"BERTH_RECONCILE_EVERY":        {"--reconcile-every=1ms"},
		"BERTH_RECONCILE_FULL_EVERY":   {"--reconcile-full-every=1s"},
		"BERTH_RECONCILE_PAUSE":        {"--reconcile-pause=10m"},
		"BERTH_RECONCILE_MAX_FINDINGS": {"--reconcile-max-findings=100000"},
		"BERTH_RECONCILE_DISABLE":      {"--reconcile-disable=all"},

		"BERTH_DEPLOYMENT": {"--deployment=berth.1"},
		"BERTH_BUILD_ID":   {"--build-id=1:2"},

		"BERTH_AUTH_SECRET":      {"--auth-secret=short"},
		"BERTH_QUEUES":           {"--queues=gold"},
		"STREAM_FLUSH_SIZE":      {"--stream-flush-size=0"},
		"BERTH_LOCAL_MODEL_URL":  {"--local-model-url=ftp://model"},
		"BERTH_MAX_UPLOAD_BYTES": {fmt.Sprintf("--max-upload-bytes=%d", berth.MaxUploadBytes+1)},
		"BERTH_PAYLOAD_KEYS":     {"--payload-keys=nonsense"},
	} {
		_, err := tryParse(t, args...)
		require.ErrorContains(t, err, name, args)
	}
}

func TestPrint_Secrets_AreHidden(t *testing.T) {
	t.Parallel()
	c := parse(t, "--auth-secret=0123456789012345678901234567890123456789", "--deepseek-api-key=sk-hidden",
		"--redis-password=hidden-too", "--database=postgres://berth:hidden3@db/berth", "--provider-keys=OPENAI_API_KEY=hidden4",
		"--temporal-api-key=hidden5", "--payload-keys="+payloadKeys)
	var out bytes.Buffer
	require.NoError(t, c.Print(&out))
	require.NotContains(t, out.String(), "hidden-too")
	require.NotContains(t, out.String(), "0123456789")
	require.NotContains(t, out.String(), "sk-hidden")
	require.NotContains(t, out.String(), "hidden3")
	require.NotContains(t, out.String(), "hidden4")
	require.NotContains(t, out.String(), "hidden5")
	require.NotContains(t, out.String(), payloadKeys)
	require.Contains(t, out.String(), "BERTH_HTTP_ADDR")
	require.Contains(t, out.String(), "(set, hidden)")
}

func TestConfig_Identity_ErrorNamesVariable(t *testing.T) { // X5, X6
	t.Parallel()
	for name, args := range map[string][]string{
		"BERTH_AUTH_SECRET":    {"--auth-secret=0123456789012345678901234567890123456789,short"},
		"BERTH_AUTH_AUDIENCE":  {"--auth-audience=events"},
		"BERTH_OIDC_ISSUER":    {"--oidc-issuer=login.example"},
		"BERTH_JWKS_URL":       {"--jwks-url=http://keys.example", "--production"},
		"BERTH_OIDC_SCOPE_MAP": {"--oidc-scope-map=staff=admin"},
		"BERTH_CORS_ORIGINS":   {"--cors-origins=https://app.example/path"},
	} {
		_, err := tryParse(t, args...)
		require.ErrorContains(t, err, name, args)
		require.NotContains(t, err.Error(), "0123456789", "secrets are not shown")
	}
}

func TestConfig_Identity_IsParsed(t *testing.T) { // X5
	t.Parallel()
	c := parse(t, "--auth-secret=01234567890123456789012345678901,abcdefghijabcdefghijabcdefghijab", "--auth-audience=a,b",
		"--oidc-issuer=http://127.0.0.1:9", "--oidc-scope-map=staff=user,operator;leads=team,team:a;*=user", "--cors-origins=https://a.example,http://b:8080")
	require.Equal(t, "01234567890123456789012345678901", c.Identity.Secret())
	require.Equal(t, "a", c.Identity.Audience())
	require.Equal(t, identity.ClaimMap{
		Scope: "scope", Tenant: "tenant", Nodes: "nodes", Team: "team", App: "app", Scopes: map[string]string{"staff": "user,operator", "leads": "team,team:a", "*": "user"},
	}, c.Identity.Claims())
	require.Equal(t, []string{"https://a.example", "http://b:8080"}, c.API.CORSOrigins)
	require.NoError(t, c.NeedSecret())
}

func TestTemporal_Environ_GivesAnotherProcessTheSameSettings(t *testing.T) {
	c := parse(t, "--temporal-addr=t:1", "--temporal-tls", "--temporal-tls-server-name=n", "--temporal-api-key=k", "--payload-keys="+payloadKeys)
	for _, setting := range c.Temporal.Environ() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	require.Equal(t, c.Temporal, parse(t).Temporal)
}
