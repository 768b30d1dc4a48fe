package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/config"
	"berth/internal/secret"
)

// raw are settings as files bring them, and what is read of them.
var raw = []struct {
	env, text string
	read      func(c config.Config) any
	want      any
}{
	{"BERTH_DATABASE", "sqlite:/data/berth.db\r", func(c config.Config) any { return string(c.Database.URL) }, "sqlite:/data/berth.db"},
	{"BERTH_DATABASE", "\ufeffsqlite:/data/berth.db\r\n", func(c config.Config) any { return string(c.Database.URL) }, "sqlite:/data/berth.db"},
	{"BERTH_DATABASE", "", func(c config.Config) any { return c.Database.IsDefault() }, true},
	{"BERTH_REDIS_ADDR", " a:1 ,b:2\r", func(c config.Config) any { return string(c.Redis.Addr) }, "a:1 ,b:2"},
	{"BERTH_REDIS_PASSWORD", "\u00a0p w\r", func(c config.Config) any { return string(c.Redis.Password) }, "p w"},
	{"BERTH_TEMPORAL_ADDR", "\tt:1\n", func(c config.Config) any { return c.Temporal.Addr }, "t:1"},
	{"BERTH_TEMPORAL_TLS", "true\r", func(c config.Config) any { return c.Temporal.TLS }, true},
	{"BERTH_TEMPORAL_TLS", " ", func(c config.Config) any { return c.Temporal.TLS }, false},
	{"BERTH_PRODUCTION", "", func(c config.Config) any { return c.Production }, false},
	{"BERTH_CONFERENCE_WAITING_KEEPS_LICENCE", "", func(c config.Config) any { return c.Conference.WaitingKeepsLicence }, true},
	{"BERTH_DRAIN", " 7s\r", func(c config.Config) any { return c.Worker.Drain }, 7 * time.Second},
	{"BERTH_DRAIN", "\r", func(c config.Config) any { return c.Worker.Drain }, 10 * time.Second},
	{"QUEUE_MAX_SIZE", " 7\u00a0", func(c config.Config) any { return c.API.QueueMaxSize }, 7},
	{"QUEUE_MAX_SIZE", "", func(c config.Config) any { return c.API.QueueMaxSize }, 1000},
	{"BERTH_LOG_FORMAT", "json\r", func(c config.Config) any { return c.LogFormat }, "json"},
	{"BERTH_LOG_LEVEL", "", func(c config.Config) any { return c.LogLevel }, "info"},
	{"BERTH_QUEUES", " tasks , turns\u00a0,,", func(c config.Config) any { return c.Worker.Queues }, []string{"tasks", "turns"}},
	{"BERTH_QUEUES", " , ", func(c config.Config) any { return len(c.Worker.Queues) }, 0},
	{"BERTH_OIDC_PARAMETERS", " scope = openid ; audience=b ;", func(c config.Config) any { return c.Identity.Parameters }, map[string]string{"scope": "openid", "audience": "b"}},
	{"BERTH_AUTH_AUDIENCE", "", func(c config.Config) any { return c.Identity.Audiences }, []string{"berth"}},
	{"BERTH_PROVIDER_KEYS", "A=1 ; B=\"2\";", func(c config.Config) any { return string(c.Model.ProviderKeys) }, "A=1 ; B=\"2\";"},
	{"BERTH_ROUTING_FILE", "\r\n", func(c config.Config) any { return c.Model.RoutingFile }, ""},
}

func TestClean_SettingsOfRealFiles_AreTrimmed(t *testing.T) { // FI5
	for _, r := range raw {
		t.Run(r.env+" "+r.text, func(t *testing.T) {
			t.Setenv(r.env, r.text)
			require.Equal(t, r.want, r.read(parse(t)))
			if r.text != "" && strings.TrimSpace(r.text) != "" {
				t.Setenv(r.env, "")
				flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(r.env, "BERTH_")), "_", "-")
				require.Equal(t, r.want, r.read(parse(t, "--"+flag+"="+r.text)), "as a flag")
			}
		})
	}
}

func TestClean_QuotesAndControlCharacters_AreRefusedByName(t *testing.T) { // FI5
	for _, env := range []string{"BERTH_DATABASE", "BERTH_REDIS_PASSWORD", "BERTH_TEMPORAL_ADDR", "BERTH_DRAIN", "QUEUE_MAX_SIZE", "BERTH_QUEUES", "BERTH_PRODUCTION", "BERTH_AUTH_SECRET", "BERTH_OIDC_PARAMETERS"} {
		for text, problem := range map[string]string{"\"hidden\"": "has quotes around it", "'hidden'": "has quotes around it", "hid\x01den": "U+0001", "hid\rden": "a carriage return"} {
			t.Run(env+" "+problem, func(t *testing.T) {
				t.Setenv(env, text)
				_, err := tryParse(t)
				require.ErrorContains(t, err, problem)
				require.ErrorContains(t, err, env)
				require.NotContains(t, err.Error(), "hid")
			})
		}
	}
}

func TestExplain_RestOfASplitSecret_IsNotShown(t *testing.T) { // FI1
	t.Parallel()
	for _, args := range [][]string{
		{"--redis-password=first", "hidden"},
		{"--redis-password", "first", "hidden"},
		{"--redis-password", "-hidden"},
		{"--redis-password", "--hidden=hidden2"},
		{"--provider-keys=A=1", "hidden=x"},
		{"--record-secrets", "-hidden"},
	} {
		_, err := tryParse(t, args...)
		require.Error(t, err, args)
		require.NotContains(t, err.Error(), "hidden2", args)
		if args[1] != "--hidden=hidden2" {
			require.NotContains(t, err.Error(), "hidden", args)
		}
	}
}

// A setting whose name says that it is secret, or that it is the address of a server, has a type whose printing is masked.
func TestConfig_Types_SecretsAndAddressesAreMasked(t *testing.T) { // FI1
	t.Parallel()
	names := regexp.MustCompile(`(SECRETS?|PASSWORD|TOKEN|KEYS?)$`)
	addresses := regexp.MustCompile(`(_URL|_ISSUER|REDIS_ADDR|_DATABASE)$`)
	allowed := map[string]bool{"BERTH_OIDC_TOKEN": true, "BERTH_TEMPORAL_TLS_KEY": true, "BERTH_REDIS_TLS_KEY": true} // a choice, and files
	var visit func(v reflect.Type)
	visit = func(v reflect.Type) {
		for i := range v.NumField() {
			f := v.Field(i)
			env, element := f.Tag.Get("env"), f.Type
			if env == "" {
				visit(f.Type)
				continue
			}
			if element.Kind() == reflect.Slice {
				element = element.Elem()
			}
			masked := element == reflect.TypeFor[secret.Text]() || element == reflect.TypeFor[secret.Address]()
			if (names.MatchString(env) || addresses.MatchString(env)) && !allowed[env] {
				require.True(t, masked, env)
			}
			if element == reflect.TypeFor[secret.Text]() && env != "BERTH_RECORD_URL" {
				require.Regexp(t, names, env)
			}
		}
	}
	visit(reflect.TypeFor[config.Config]())
}

func TestTemporal_PayloadKeysFile_IsRead(t *testing.T) { // FI1
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(payloadKeys+"\r\n"+strings.Replace(payloadKeys, "a:", "b:", 1)+"\r\n"), 0o600))
	keys, err := parse(t, "--payload-keys-file="+file).Temporal.Keys()
	require.NoError(t, err)
	require.True(t, keys.Encrypt())
	require.ErrorContains(t, parseInvalid(t, "--payload-keys-file="+file, "--payload-keys="+payloadKeys), "set one of BERTH_PAYLOAD_KEYS and BERTH_PAYLOAD_KEYS_FILE")
	require.ErrorContains(t, parseInvalid(t, "--payload-keys=a:c2hvcnQ="), "--payload-keys (BERTH_PAYLOAD_KEYS): entry 1: the key has 5 bytes; must have 32")
}
