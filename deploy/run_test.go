package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"berth/internal/devserver"
	"berth/internal/freeport"
	"berth/internal/pause"
	programs "berth/internal/process"
	"berth/internal/testdb"
	"berth/internal/testlivekit"
)

// maxWait bounds every wait, generous for machines that run other tests at the same time.
const maxWait = 90 * time.Second

// X2: the commands and environments of docker-compose.yml run as processes of this machine, with the addresses of services
// replaced by local ones and PostgreSQL by the server of the tests. They become healthy by their own health checks, a chain of
// model calls, a turn and a conference complete, metrics are served and traces arrive, and all processes stop in time.
func TestCompose_Commands_RunNatively(t *testing.T) {
	t.Parallel()
	env := settings(t)
	project, err := load(t, env)
	require.NoError(t, err)
	m := newMachine(t, project)
	m.startServers(env)
	var berths []string
	for name, s := range project.Services {
		if isBerth(s) {
			m.startBerth(name)
			berths = append(berths, name)
		}
	}
	require.Len(t, berths, 6)
	for _, name := range append([]string{"redis", "livekit"}, berths...) {
		m.awaitHealthy(name)
	}

	m.runs("", "task", "submit", "--template", "job_match", "--watch",
		"--var", "jobImage=@"+repo(t, "examples/posting-en.png"), "--var", "resume=@"+repo(t, "examples/resume-en.txt"))
	m.awaitNode("apertium-1")
	require.Contains(t, m.runs("Thank you for the water.\n", "turn", "--from", "en", "--to", "es"), "apertium-1")
	m.awaitNode("unit-1")
	m.runs("", "conference", "create", "8613800138000", "--for", "5m")
	m.eventually("the conference to run on the unit", func() bool {
		return strings.Contains(m.runs("", "conference", "list", "--status", "open"), "unit-1")
	})
	m.runs("", "conference", "end", "8613800138000")

	for _, name := range berths {
		if project.Services[name].Environment["BERTH_METRICS_ADDR"] != nil {
			require.Contains(t, m.get("http://"+m.local(name+":9464")+"/metrics"), "berth_build_info{", name)
		}
	}
	m.eventually("traces of API and workers", func() bool { return m.traces.from("berth-api") && m.traces.from("berth-worker") })
	for _, name := range berths {
		require.True(t, m.processes[name].stop(time.Duration(*project.Services[name].StopGracePeriod)), "%s did not stop", name)
		require.Zero(t, m.processes[name].cmd.ProcessState.ExitCode(), "%s: %s", name, m.processes[name].output())
	}
}

// machine runs the services of a compose project as processes.
type machine struct {
	t         *testing.T
	project   *types.Project
	dir       string
	addresses map[string]string // by service:port
	processes map[string]*process
	database  string
	token     string
	traces    *traces
}

func newMachine(t *testing.T, p *types.Project) *machine {
	t.Helper()
	m := &machine{t: t, project: p, dir: t.TempDir(), addresses: map[string]string{}, processes: map[string]*process{}, traces: &traces{}}
	for name, ports := range listening(t, p) {
		for _, port := range ports {
			local, release, err := freeport.Reserve() // a service starts later
			require.NoError(t, err)
			if t.Cleanup(release); name == "livekit" {
				release() // it needs the UDP port too, which the reservation holds
			}
			m.addresses[fmt.Sprintf("%s:%d", name, port)] = net.JoinHostPort("127.0.0.1", strconv.Itoa(local))
		}
	}
	receiver := httptest.NewServer(m.traces)
	t.Cleanup(receiver.Close)
	m.addresses[collector+":4318"] = receiver.Listener.Addr().String()
	m.database = testdb.Postgres(t)
	t.Cleanup(func() {
		for _, p := range m.processes {
			p.kill()
		}
		if t.Failed() {
			for name, p := range m.processes {
				t.Logf("--- %s\n%s", name, p.output())
			}
		}
	})
	return m
}

// local returns the address on this machine of one like "redis:6379".
func (m *machine) local(address string) string {
	m.t.Helper()
	require.Contains(m.t, m.addresses, address)
	return m.addresses[address]
}

// localized replaces the addresses in a setting or argument of a service: those of other services, and those on which it
// listens itself.
func (m *machine) localized(name, text string) string {
	return regexp.MustCompile(`\b([a-z][a-z-]*|0\.0\.0\.0|127\.0\.0\.1):(\d{4,5})\b`).ReplaceAllStringFunc(text, func(address string) string {
		host, port, _ := strings.Cut(address, ":")
		if host == "0.0.0.0" || host == "127.0.0.1" {
			address = name + ":" + port
		}
		if other, ok := m.addresses[address]; ok {
			return other
		}
		return host + ":" + port
	})
}

func (m *machine) startServers(env map[string]string) {
	m.t.Helper()
	// Temporal, with the namespace of the compose file.
	temporal, data := m.local("temporal:7233"), filepath.Join(m.dir, "temporal")
	namespace := *m.project.Services["temporal-namespace"].Environment["TEMPORAL_NAMESPACE"]
	m.start("temporal", binary(m.t, "berth-dev"), nil, []string{
		"BERTH_DATA_DIR=" + data, "BERTH_DEV_ONLY=temporal", "BERTH_TEMPORAL_ADDR=" + temporal, "BERTH_TEMPORAL_NAMESPACE=" + namespace,
	})
	// Redis, with the command and the configuration file of the compose file.
	redis := m.project.Services["redis"]
	_, port, err := net.SplitHostPort(m.local("redis:6379"))
	require.NoError(m.t, err)
	config := "/etc/redis/redis.conf"
	require.Contains(m.t, redis.Command[2], config+" -")
	command := strings.Replace(redis.Command[2], config, fmt.Sprintf("%s --dir %s --bind 127.0.0.1 --port %s", m.mounted("redis", config), m.dir, port), 1)
	m.start("redis", "sh", []string{"-c", command}, environment(redis))
	// LiveKit, likewise. The ports of media are those of the configuration file otherwise.
	livekit := m.project.Services["livekit"]
	args := slices.Clone(livekit.Command)
	i := slices.Index(args, "--config")
	args[i+1] = m.mounted("livekit", args[i+1])
	for flag, address := range map[string]string{"--port": "livekit:7880", "--rtc.tcp_port": "livekit:7881", "--udp-port": "livekit:7882"} {
		_, port, err := net.SplitHostPort(m.local(address))
		require.NoError(m.t, err)
		args = append(args, flag, port)
	}
	m.start("livekit", testlivekit.Binary(m.t), append(args, "--bind", "127.0.0.1"), environment(livekit))

	m.eventually("Temporal to be ready", func() bool { return exists(devserver.ReadyFile(data)) == nil })
	cmd := exec.CommandContext(m.t.Context(), binary(m.t, "berth"), "token", "--user", "alice", "--scopes", "user,operator")
	cmd.Env = []string{"BERTH_AUTH_SECRET=" + env["BERTH_AUTH_SECRET"]}
	out, err := cmd.Output()
	require.NoError(m.t, err)
	m.token = strings.TrimSpace(string(out))
}

// mounted returns the file of this repository that a service finds at a path.
func (m *machine) mounted(name, target string) string {
	m.t.Helper()
	for _, v := range m.project.Services[name].Volumes {
		if v.Target == target {
			return v.Source
		}
	}
	require.Fail(m.t, "not mounted", "%s: %s", name, target)
	return ""
}

func environment(s types.ServiceConfig) []string {
	var env []string
	for name, value := range s.Environment {
		if value != nil {
			env = append(env, name+"="+*value)
		}
	}
	return env
}

// environment returns the variables of a berth service, and nothing else of this process but the search path.
func (m *machine) environment(name string) []string {
	var env []string
	for _, v := range environment(m.project.Services[name]) {
		if strings.HasPrefix(v, "BERTH_DATABASE=") {
			v = "BERTH_DATABASE=" + m.database
		}
		env = append(env, m.localized(name, v))
	}
	return append(env, searchPath(), "HOME="+m.dir)
}

// searchPath returns the variable PATH of this process.
func searchPath() string {
	i := slices.IndexFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	return os.Environ()[i]
}

func (m *machine) startBerth(name string) {
	m.t.Helper()
	s := m.project.Services[name]
	var args []string
	for _, arg := range s.Command {
		args = append(args, m.localized(name, arg))
	}
	env := m.environment(name)
	if name == "model" {
		env = append(env, "BERTH_MODEL_TOKENS_PER_SECOND=0") // as fast as possible
	}
	program := "berth"
	if s.Build.Target == "sim" {
		program = "berth-sim"
	}
	m.start(name, binary(m.t, program), args, env)
}

// awaitHealthy runs the health check of a service until it succeeds.
func (m *machine) awaitHealthy(name string) {
	m.t.Helper()
	test := m.project.Services[name].HealthCheck.Test
	m.eventually(name+" to be healthy", func() bool {
		select {
		case <-m.processes[name].done:
			require.Fail(m.t, "process ended", name)
		default:
		}
		var cmd *exec.Cmd
		switch name {
		case "redis":
			_, port, _ := net.SplitHostPort(m.local("redis:6379"))
			cmd = exec.CommandContext(m.t.Context(), "sh", "-c", strings.Replace(test[1], "redis-cli", "redis-cli -p "+port, 1))
			cmd.Env = append(environment(m.project.Services[name]), searchPath())
		case "livekit": // wget may not be installed here
			res, err := http.Get(m.localized(name, test[len(test)-1])) //nolint:noctx // a test's own server
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode == http.StatusOK
		default:
			var args []string
			for _, arg := range test[2:] {
				args = append(args, m.localized(name, arg))
			}
			cmd = exec.CommandContext(m.t.Context(), binary(m.t, test[1]), args...) //nolint:gosec // this project's program
			cmd.Env = m.environment(name)
		}
		return cmd.Run() == nil
	})
}

// runs runs a terminal command that must succeed, and returns its output.
func (m *machine) runs(stdin string, args ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), maxWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(m.t, "berth"), args...) //nolint:gosec // this project's program
	cmd.Env = []string{"BERTH_URL=http://" + m.local("api:8080"), "BERTH_TOKEN=" + m.token}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "berth %q: %s", args, out)
	return string(out)
}

func (m *machine) awaitNode(id string) {
	m.t.Helper()
	m.eventually("node "+id, func() bool {
		var node struct{ State string }
		return json.Unmarshal([]byte(m.get("http://"+m.local("api:8080")+"/v1/nodes/"+id)), &node) == nil && node.State != ""
	})
}

// get returns the body of a response.
func (m *machine) get(url string) string {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(m.t, err)
	req.Header.Set("Authorization", "Bearer "+m.token)
	res, err := http.DefaultClient.Do(req)
	require.NoError(m.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(m.t, err)
	return string(body)
}

func (m *machine) eventually(what string, ok func() bool) {
	m.t.Helper()
	require.NoError(m.t, pause.Until(m.t.Context(), maxWait, 100*time.Millisecond, func(context.Context) error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	}), what)
}

// process is a running program with its output.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func (m *machine) start(name, program string, args, env []string) {
	m.t.Helper()
	out, err := os.Create(filepath.Join(m.dir, name+".log"))
	require.NoError(m.t, err)
	p := &process{cmd: exec.Command(program, args...), log: out.Name(), done: make(chan struct{})} //nolint:gosec,noctx // ended by kill or stop
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = m.dir, env, out, out
	p.cmd.SysProcAttr = programs.EndWithParent(&syscall.SysProcAttr{Setpgid: true}) // a shell has children
	require.NoError(m.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the test checks the exit code
		_ = out.Close()
		close(p.done)
	}()
	m.processes[name] = p
}

func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.done
}

// stop asks the process to end, and reports whether it did in time.
func (p *process) stop(within time.Duration) bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return true
	case <-time.After(within):
		return false
	}
}

func (p *process) output() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// traces receives traces over OTLP.
type traces struct {
	mu       sync.Mutex
	received bytes.Buffer
}

func (r *traces) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil || req.URL.Path != "/v1/traces" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received.Write(body)
}

// from reports whether a service has sent a trace: its name is part of the message as it is.
func (r *traces) from(service string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.received.Bytes(), []byte(service))
}

func repo(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(filepath.Join("..", filepath.FromSlash(path)))
	require.NoError(t, err)
	return absolute
}
