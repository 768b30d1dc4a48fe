package node

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestNewDriver_ValidFlags_ReturnsTheChosenDriver(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Driver{"exec": &Exec{}, "http": &HTTP{}} {
		f := DriverFlags{Driver: name, ExecFlags: ExecFlags{Exec: "cat"}, HTTPFlags: HTTPFlags{HTTPURL: "http://127.0.0.1:1"}}
		d, err := NewDriver(f, berth.NodeSpec{ID: "n"}, slog.New(slog.DiscardHandler))
		require.NoError(t, err, name)
		require.IsType(t, want, d)
	}
	require.Equal(t, []string{"exec", "http"}, DriverNames())
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
		{DriverFlags{Driver: "exec", ExecFlags: ExecFlags{Exec: "cat", ExecEnv: []string{"A=b"}}}, berth.NodeTranslate, "--exec-env"},
		{DriverFlags{Driver: "exec", ExecFlags: ExecFlags{Exec: "no-such-program -u eng-spa"}}, berth.NodeTranslate, "--exec: the program no-such-program is not found"},
		{DriverFlags{Driver: "exec", ExecFlags: ExecFlags{Exec: "/no/such | cat"}}, berth.NodeTranslate, "--exec: the program /no/such is not found"},
		{DriverFlags{Driver: "exec", ExecFlags: ExecFlags{Exec: "/etc/passwd"}}, berth.NodeTranslate, "--exec: the program /etc/passwd is not found, or not executable"},
		{DriverFlags{Driver: "http", HTTPFlags: HTTPFlags{HTTPURL: "x"}}, berth.NodeTranslate, "--http-url"},
		{DriverFlags{Driver: "http", HTTPFlags: openAI}, berth.NodeTranslate, "--model"},
		{DriverFlags{Driver: "http", HTTPFlags: withModel}, berth.NodeEngine, "--http-openai"},
	} {
		_, err := NewDriver(c.flags, berth.NodeSpec{ID: "n", Kind: c.kind}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, c.want)
	}
}

// Whatever a shell reads before it looks for a program is left to it.
func TestNewDriver_ExecLineOfAShell_IsAccepted(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"cat", "/bin/cat", " cat -u", "read line; echo $line", "exec cat", "A=1 no-such", "$HOME/no-such", "(cat)", "{ cat; }", "if true; then cat; fi",
		"while read l; do echo $l; done", "'cat'", "! cat", ": | cat", ". ./no-such", "f() { cat; }; f", "cat<&0", "~/no-such", "[ 1 = 1 ]",
	} {
		_, err := NewDriver(DriverFlags{Driver: "exec", ExecFlags: ExecFlags{Exec: line}}, berth.NodeSpec{ID: "n", Kind: berth.NodeTranslate}, slog.New(slog.DiscardHandler))
		require.NoError(t, err, line)
	}
}

// FA11: a command gets what programs need, and of the rest what the operator names; no list of secrets has to be complete.
func TestNewDriver_Exec_CommandsGetAllowedVariablesOnly(t *testing.T) {
	t.Parallel()
	agent := map[string]bool{ // whether commands get it
		"PATH=/bin": true, "HOME=/home/a": true, "USER=a": true, "LANG=de_DE.UTF-8": true, "LC_ALL=C": true, "TZ=UTC": true, "TMPDIR=/tmp": true,
		"SSL_CERT_FILE=/ca.pem": true, "CUDA_VISIBLE_DEVICES=1": true, "LD_LIBRARY_PATH=/lib": true,
		"https_proxy=http://proxy:3128": true, "HTTP_PROXY=proxy:3128": true, "NO_PROXY=localhost,.example": true,
		"HTTPS_PROXY=http://user:secret@proxy:3128": false, "http_proxy=user:secret@proxy:3128": false, "ALL_PROXY=socks5://:secret@proxy": false,
		"BERTH_TOKEN=secret": false, "BERTH_AUTH_SECRET=secret": false, "BERTH_NODE_HTTP_KEY=secret": false, "BERTH_PROVIDER_KEYS=secret": false,
		"BERTH_DATABASE=postgres://berth:secret@db/berth": false, "BERTH_REDIS_PASSWORD=secret": false, "BERTH_OF_A_LATER_VERSION=secret": false,
		"AWS_SECRET_ACCESS_KEY=secret": false, "AWS_SESSION_TOKEN=secret": false, "GOOGLE_APPLICATION_CREDENTIALS=/secret": false,
		"AZURE_CLIENT_SECRET=secret": false, "DEEPSEEK_API_KEY=secret": false, "GITHUB_TOKEN=secret": false, "PGPASSWORD=secret": false,
		"KUBECONFIG=/secret": false, "LC=secret": false, "PATHS=secret": false, "MY_PROXY=secret": false, "path=secret": false, "=C:=secret": false,
	}
	var all, want []string
	for v, passed := range agent {
		all = append(all, v)
		if passed {
			want = append(want, v)
		}
	}
	got, err := allowedEnv(all, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)

	for _, c := range []struct{ named, more []string }{
		{[]string{"GITHUB_TOKEN"}, []string{"GITHUB_TOKEN=secret"}},
		{[]string{"AWS_*", "HTTPS_PROXY"}, []string{"AWS_SECRET_ACCESS_KEY=secret", "AWS_SESSION_TOKEN=secret", "HTTPS_PROXY=http://user:secret@proxy:3128"}},
		{[]string{"NOT_SET", "PATH"}, nil},
	} {
		got, err := allowedEnv(all, c.named)
		require.NoError(t, err)
		require.ElementsMatch(t, append(slices.Clone(want), c.more...), got)
	}
	got, err = allowedEnv(all, []string{"*"})
	require.NoError(t, err)
	require.ElementsMatch(t, all, got)
	for _, bad := range []string{"", "A B", "A=b", "*_KEY", "1A", "$A", "A-B"} {
		_, err := allowedEnv(all, []string{bad})
		require.ErrorContains(t, err, "environment variable", bad)
	}
}

func TestNewDriver_Exec_EnvironmentReachesCommands(t *testing.T) {
	for _, name := range []string{"BERTH_TOKEN", "BERTH_OTHER", "SOME_API_KEY", "CLOUD_SECRET"} {
		t.Setenv(name, "hidden")
	}
	t.Setenv("MODEL_DIR", "/models")
	t.Setenv("TZ", "Asia/Tokyo")
	f := DriverFlags{Driver: "exec", ExecFlags: ExecFlags{Exec: "env", ExecEnv: []string{"MODEL_*"}}}
	d, err := NewDriver(f, berth.NodeSpec{ID: "n"}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	out, err := d.Translate(t.Context(), segment)
	require.NoError(t, err)
	require.NotContains(t, out.Text, "hidden")
	for _, want := range []string{"MODEL_DIR=/models", "TZ=Asia/Tokyo", "PATH=", "BERTH_NODE_ID=n", "BERTH_JOB_ID=t1-0"} {
		require.Contains(t, out.Text, want)
	}
}
