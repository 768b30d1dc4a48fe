package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/devserver"
	"berth/internal/freeport"
	"berth/internal/secret"
)

// asProgram makes the test binary behave as berth-dev, so that tests can start real processes without another build.
const asProgram = "BERTH_DEV_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestServer_DataDirectoryInUse_SecondIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := program(t, dir, "--only=redis")
	r := awaitReadyFile(t, dir)
	require.Equal(t, first.Process.Pid, r.PID)
	require.Equal(t, []string{partRedis}, r.Parts)
	requireOpen(t, r.RedisAddr)

	out, err := command(t, dir, "--only=redis").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
	require.Contains(t, string(out), "BERTH_DATA_DIR")

	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	require.NoError(t, first.Wait())
	require.NoFileExists(t, filepath.Join(dir, "ready.json"))
	_, err = net.DialTimeout("tcp", r.RedisAddr, time.Second)
	require.Error(t, err)
}

func TestServer_Killed_ChildrenEndAndNextStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := program(t, dir, "--only=redis,temporal,ui")
	r := awaitReadyFile(t, dir)
	requireOpen(t, r.TemporalAddr)
	requireOpen(t, r.TemporalUIAddr)
	require.NoError(t, first.Process.Kill())
	require.Error(t, first.Wait())
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", r.RedisAddr, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 30*time.Second, 10*time.Millisecond, "redis-server outlived the process that started it")

	// The old ready.json still exists: the new process removes it before it starts anything.
	second := program(t, dir, "--only=redis,temporal,ui",
		"--temporal-addr="+r.TemporalAddr, "--temporal-ui-addr="+r.TemporalUIAddr, "--redis-addr="+r.RedisAddr)
	require.Eventually(t, func() bool {
		again, err := readReady(dir)
		return err == nil && again.PID == second.Process.Pid
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, second.Wait())
}

func TestServer_PortInUse_SettingIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	out, err := command(t, t.TempDir(), "--only=redis,temporal", "--temporal-addr="+l.Addr().String()).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), l.Addr().String()+" (BERTH_TEMPORAL_ADDR)")

	// Two settings with the same port are a conflict.
	free, err := freeport.Find(1)
	require.NoError(t, err)
	same := net.JoinHostPort("127.0.0.1", strconv.Itoa(free[0]))
	out, err = command(t, t.TempDir(), "--only=redis,temporal", "--temporal-addr="+same, "--redis-addr="+same).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "BERTH_TEMPORAL_ADDR")
}

func TestServer_InvalidSetting_IsNamed(t *testing.T) {
	t.Parallel()
	for flag, setting := range map[string]string{
		"--only=reddis":                "BERTH_DEV_ONLY",
		"--only=ui":                    "BERTH_DEV_ONLY",
		"--http-addr=8080":             "BERTH_HTTP_ADDR",
		"--model-addr=127.0.0.1:99999": "BERTH_MODEL_ADDR",
		"--redis-addr=redis://x":       "BERTH_REDIS_ADDR",
		"--temporal-tls-server-cert=x": "BERTH_TEMPORAL_TLS_SERVER_KEY",
		"--temporal-tls-ca=x":          "BERTH_TEMPORAL_TLS_SERVER_CERT",
		"--payload-keys=x":             "BERTH_PAYLOAD_KEYS",
	} {
		out, err := command(t, t.TempDir(), flag).CombinedOutput()
		require.Error(t, err, flag)
		require.Contains(t, string(out), setting, flag)
	}
}

// Each row is a setting with a default of the development server, as the environment and a flag set it.
func TestOptions_DefaultOfDevelopment_SettingPrecedes(t *testing.T) {
	private := func(o *options) any { return o.Webhook.AllowPrivate }
	for _, row := range []struct {
		env, text string
		args      []string
		read      func(*options) any
		want      any
	}{
		{read: private, want: true},
		{env: "BERTH_WEBHOOK_ALLOW_PRIVATE", text: "", read: private, want: true},
		{env: "BERTH_WEBHOOK_ALLOW_PRIVATE", text: "false", read: private, want: false},
		{env: "BERTH_WEBHOOK_ALLOW_PRIVATE", text: "true", read: private, want: true},
		{args: []string{"--webhook-allow-private=false"}, read: private, want: false},
		{env: "BERTH_WEBHOOK_ALLOW_PRIVATE", text: "false", args: []string{"--webhook-allow-private"}, read: private, want: true},
	} {
		t.Run(row.env+row.text+strings.Join(row.args, " "), func(t *testing.T) {
			if row.env != "" {
				t.Setenv(row.env, row.text)
			}
			var o options
			_, err := parser(&o).Parse(row.args)
			require.NoError(t, err)
			o.connect()
			require.Equal(t, row.want, row.read(&o))
		})
	}
}

// The text is printed at every start, when the balances may have changed.
func TestInvite_Credits_AreThoseOfTheFirstStart(t *testing.T) {
	t.Parallel()
	o := &options{}
	o.Identity.Secrets = secret.Text(strings.Repeat("x", 32))
	var out strings.Builder
	require.NoError(t, invite(&out, o))
	require.Contains(t, out.String(), "alice, who starts with 100 credits:")
	require.Contains(t, out.String(), "bob, who starts with none;")
}

func TestParts_StopOrFailedStart_StopInReverseOrder(t *testing.T) {
	t.Parallel()
	var order []string
	fake := func(name string, err error) part {
		return part{name: name, start: func(context.Context) (func(context.Context) error, error) {
			if err != nil {
				return nil, err
			}
			order = append(order, "start "+name)
			return func(context.Context) error { order = append(order, "stop "+name); return nil }, nil
		}}
	}
	logger := slog.New(slog.DiscardHandler)
	s, err := start(t.Context(), []part{fake("a", nil), fake("b", nil)}, logger)
	require.NoError(t, err)
	require.NoError(t, s.stop(time.Second))
	require.Equal(t, []string{"start a", "start b", "stop b", "stop a"}, order)

	order = nil
	_, err = start(t.Context(), []part{fake("a", nil), fake("b", errors.New("disk full"))}, logger)
	require.EqualError(t, err, "b: disk full")
	require.Equal(t, []string{"start a", "stop a"}, order)
}

func TestPart_EndsUnexpectedly_IsReported(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	ended := errors.New("ended")
	release := make(chan struct{})
	p := serve("p", failed, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-release:
			return ended
		}
	}, func(context.Context) error { return nil })

	stop, err := p.start(t.Context())
	require.NoError(t, err)
	require.NoError(t, stop(t.Context()))
	require.Empty(t, failed, "a requested stop must not be reported")

	_, err = p.start(t.Context())
	require.NoError(t, err)
	close(release)
	require.ErrorIs(t, <-failed, ended)

	never := serve("p", failed, func(context.Context) error { return ended },
		func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	_, err = never.start(t.Context())
	require.ErrorIs(t, err, ended, "a part that ends before it is ready fails to start")
}

// command returns berth-dev on dir, with free ports unless args set them.
func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"--data-dir=" + dir}, args...)...) //nolint:gosec // this very binary
	cmd.Env = append(os.Environ(), asProgram+"=1", "BERTH_HTTP_ADDR=127.0.0.1:0", "BERTH_TEMPORAL_ADDR=127.0.0.1:0",
		"BERTH_TEMPORAL_UI_ADDR=127.0.0.1:0", "BERTH_REDIS_ADDR=127.0.0.1:0", "BERTH_MODEL_ADDR=127.0.0.1:0")
	return cmd
}

func program(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, dir, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return cmd
}

func awaitReadyFile(t *testing.T, dir string) (r devserver.Ready) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		r, err = readReady(dir)
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	return r
}

func readReady(dir string) (r devserver.Ready, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "ready.json")) //nolint:gosec // the test's own directory
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

func requireOpen(t *testing.T, addr string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, time.Second)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}
