package tests

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/config"
	masked "berth/internal/secret" // secret is the one of stacks
)

// The parts of a planted secret, of which none may appear: a lenient parser shows only a part of it.
const (
	plantedFirst = "pL4nt3dOne"
	plantedLast  = "s3cr3tTwo"
)

// textForms are wrong forms of a secret, as files and shells bring them. %s is the secret.
var textForms = []string{
	"%s", "%s\r", "\"%s\"", "'%s'", " %s ", "%s\n\n", "\ufeff%s", "\u00a0%s\u00a0", "%s\u200b" + plantedFirst, "%s\x01" + plantedLast, "%s\r\n%[1]s", "=%s", "NAME=%s", "NAME %s",
	"NAME=\"%s", "id:%s", "id:%s,id:%[1]s", "none,%s", "%s;%[1]s", "whsec_%s", "-%s", "--%s", "--%s=%[1]s", "%%%s", "%s%%zz", "${%s}", "%s@host:1", "http://%s", "{\"k\": \"%s\"}",
	"“%s”", "%s\t%[1]s", "\xff%s",
}

// addressForms are wrong forms of an address with a password. %s is its scheme, %[2]s the password.
var addressForms = []string{
	"app:%[2]s@h:1/d", "%[2]s", "host=h user=app password=%[2]s", "h/d?password=%[2]s", "%s://app:%[2]s/x@h/d", "%s://app:%[2]s", "%s://app:a/%[2]s@h/d",
	"%s://app:a#%[2]s@h/d", "%s://app:a?%[2]s@h/d", "%s://app:a@%[2]s@h/d", "%s://app:a b%[2]s@h/d", "%s://app:100%%%[2]s@h/d", "%s://app:%[2]s%%@h/d",
	"%s://app:%[2]s%%zz@h/d", "%s://127.0.0.1:1/d?user=app&password=%[2]s", "%s://127.0.0.1:1/d?sslpassword=%[2]s&sslmode=disable", "%s://127.0.0.1:1/d?token=%[2]s#%[2]s",
	"%s:// app:%[2]s@h/d", "\"%s://app:%[2]s@h/d\"", "%s//app:%[2]s@h/d", "%s:/app:%[2]s@h/d", "jdbc:%s://h/d?password=%[2]s", "%s://app:%[2]s@h:port/d",
	"%s://app:%[2]s@h:99999999/d", "%s://app:%[2]s@[::1/d", "%s://app:[%[2]s@h/d", "%s://:%[2]s@127.0.0.1:1", "%s://%[2]s@127.0.0.1:1", "%s://app:%[2]s@127.0.0.1:1/d",
	"%s://app:%[2]s@127.0.0.1:1/d\r", "%s://app:%[2]s@127.0.0.1:1/d?sslmode=bad", "%s://app:%[2]s@127.0.0.1:1/d?sslrootcert=/none", "%s://app:%[2]s\x01@127.0.0.1:1/d",
	"127.0.0.1:1,app:%[2]s@127.0.0.1:2", "%s:app:%[2]s@h/d",
}

// planted is a setting that can contain a secret.
type planted struct {
	env, flag, scheme string // scheme: of an address
}

func (p planted) forms() []string {
	if p.scheme == "" {
		return textForms
	}
	return addressForms
}

func (p planted) form(i int) string {
	forms := p.forms()
	if i %= len(forms); p.scheme == "" {
		return fmt.Sprintf(forms[i], plantedFirst+plantedLast)
	}
	return fmt.Sprintf(strings.Replace(forms[i], "%s", "%[1]s", 1), p.scheme, plantedFirst+plantedLast)
}

// plantedSettings returns the settings of berth that can contain a secret: by their types.
func plantedSettings() (all []planted) {
	schemes := map[string]string{"BERTH_DATABASE": "postgres", "BERTH_REDIS_ADDR": "redis", "BERTH_SIGNALLING_URL": "wss"}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			env, element := f.Tag.Get("env"), f.Type
			if element.Kind() == reflect.Slice {
				element = element.Elem()
			}
			switch {
			case env == "":
				visit(f.Type)
			case element == reflect.TypeFor[masked.Text]():
				all = append(all, planted{env, f.Tag.Get("name"), ""})
			case element == reflect.TypeFor[masked.Address]():
				scheme := schemes[env]
				if scheme == "" {
					scheme = "https"
				}
				all = append(all, planted{env, f.Tag.Get("name"), scheme})
			}
		}
	}
	visit(reflect.TypeFor[config.Config]())
	for _, host := range []string{"BERTH_TEMPORAL_ADDR", "BERTH_HTTP_ADDR", "BERTH_METRICS_ADDR", "BERTH_CORS_ORIGINS", "BERTH_MEDIA_HOSTS"} {
		all = append(all, planted{host, strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(host, "BERTH_"), "_", "-")), "https"})
	}
	return append(all,
		planted{"BERTH_URL", "url", "https"}, planted{"BERTH_TOKEN", "token", ""}, planted{"LIVEKIT_URL", "livekit-url", "https"},
		planted{"LIVEKIT_CLIENT_URL", "client-url", "wss"}, planted{"LIVEKIT_API_SECRET", "livekit-secret", ""}, planted{"BERTH_NODE_HTTP_KEY", "http-key", ""},
		planted{"BERTH_NODE_HTTP_SECRET", "http-secret", ""}, planted{"BERTH_TEMPORAL_DATABASE", "temporal-database", "postgres"})
}

// search runs programs and searches what they print.
type search struct {
	t     *testing.T
	dir   string
	runs  int
	bytes int
	// status is that of the last program, -1 if it was ended.
	status int
}

// routing returns the built-in routing file with providers at addresses of this host: berth doctor calls them.
func (s *search) routing() string {
	text, err := os.ReadFile("../internal/llm/routing.yaml")
	require.NoError(s.t, err)
	file := filepath.Join(s.dir, "routing.yaml")
	require.NoError(s.t, os.WriteFile(file, regexp.MustCompile(`(?m)^(    baseURL: ).*`).ReplaceAll(text, []byte("${1}http://127.0.0.1:1")), 0o600))
	return file
}

// run runs a program until it ends or, as a server, works or retries, and requires that it prints no part of the secret.
func (s *search) run(what string, bin string, args, env []string) []byte {
	s.t.Helper()
	return s.runUntil([]byte("unavailable"), what, bin, args, env)
}

// runUntil is run, with the text after which the program has printed enough; nil: when it ends.
func (s *search) runUntil(enough []byte, what string, bin string, args, env []string) []byte {
	path, err := filepath.Abs(filepath.Join("..", "bin", bin))
	require.NoError(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	out := &watched{seen: func(b []byte) bool {
		return enough != nil && bytes.Contains(b, enough)
	}, cancel: cancel}
	// Tools that read uploads are not searched for here.
	cmd.Env = append([]string{"HOME=" + s.dir, "PATH=/none", "BERTH_METRICS_ADDR=off", "BERTH_HTTP_ADDR=127.0.0.1:0", "BERTH_LOG_LEVEL=debug", "BERTH_ROUTING_FILE=" + s.routing()}, env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_ = cmd.Run() // many are meant to fail
	s.status = cmd.ProcessState.ExitCode()
	text := out.text.Bytes()
	s.runs++
	s.examine(fmt.Sprintf("%s: %s %q", what, bin, args), text)
	require.NotContains(s.t, string(text), "panic:", what)
	require.NotContains(s.t, string(text), "goroutine 1 [", what)
	return text
}

// examine requires that a text has no part of the secret.
func (s *search) examine(what string, text []byte) {
	s.t.Helper()
	s.bytes += len(text)
	for _, part := range []string{
		plantedFirst, plantedLast, fmt.Sprintf("%x", plantedFirst), base64.RawStdEncoding.EncodeToString([]byte(plantedFirst + plantedLast))[:12],
	} {
		if i := bytes.Index(bytes.ToLower(text), bytes.ToLower([]byte(part))); i >= 0 {
			s.t.Errorf("%s shows the secret:\n%s", what, text[max(0, i-300):min(len(text), i+100)])
			break
		}
	}
}

// watched collects output, and ends the program when it has seen enough.
type watched struct {
	text   bytes.Buffer
	seen   func([]byte) bool
	cancel context.CancelFunc
}

// Write is part of io.Writer. exec calls it from one goroutine, because stdout and stderr are the same writer.
func (w *watched) Write(b []byte) (int, error) {
	n, err := w.text.Write(b)
	if w.seen(w.text.Bytes()) {
		w.cancel()
	}
	return n, err
}

// commandsOfSecrets are the commands that read settings with secrets. A command with a flag of its own has it here.
var commandsOfSecrets = [][]string{
	{"config"},
	{"doctor"},
	{"api"},
	{"worker"},
	{"token", "--user=u"},
	{"task", "list"},
	{"reconcile", "--last"},
	{"conference", "list"},
	{"rollout", "status"},
	{"node", "--id=n", "--driver=http", "--capabilities=translate:en-es", "--http-url=http://127.0.0.1:1"},
	{"node", "list"},
	{"media", "--id=u", "--livekit-key=k"},
	{"health"},
	{"turn"},
	{"--help"},
	{"api", "--help"},
	{"worker", "--help"},
	{"doctor", "--help"},
	{"config", "--help"},
	{"node", "--help"},
	{"media", "--help"},
	{"task", "list", "--help"},
}

// A secret that is planted in every setting, in every form, appears in no output of any command.
func TestSecrets_PlantedInAllSettings_AppearInNoOutput(t *testing.T) { // FI1
	t.Parallel()
	settings := plantedSettings()
	s := &search{t: t, dir: t.TempDir()}
	for i := range max(len(textForms), len(addressForms)) {
		var env, flags, files []string
		for _, p := range settings {
			env = append(env, p.env+"="+p.form(i))
			path := filepath.Join(s.dir, fmt.Sprintf("%s-%d", p.flag, i))
			require.NoError(t, os.WriteFile(path, []byte(p.form(i)), 0o600))
			files = append(files, p.env+"_FILE="+path)
		}
		all := [][]string{commandsOfSecrets[i%len(commandsOfSecrets)], {"config"}}
		for _, args := range all {
			s.run(fmt.Sprint("environment, form ", i), "berth", args, env)
		}
		s.run(fmt.Sprint("environment, form ", i), "berth-bench", nil, env)
		s.run(fmt.Sprint("environment, form ", i), "berth-sim", []string{"model", "--model-addr=off"}, env)
		s.run(fmt.Sprint("files, form ", i), "berth", []string{"config"}, files)
		for _, p := range plantedSettings() {
			if p.flag != "" && !strings.HasPrefix(p.env, "LIVEKIT") && !strings.HasPrefix(p.env, "BERTH_NODE") && p.env != "BERTH_URL" && p.env != "BERTH_TOKEN" && p.env != "BERTH_TEMPORAL_DATABASE" {
				flags = append(flags, "--"+p.flag+"="+p.form(i))
			}
		}
		s.run(fmt.Sprint("flags, form ", i), "berth", append([]string{"config"}, flags...), nil)
	}
	t.Logf("%d runs, %d bytes of output", s.runs, s.bytes)
}
