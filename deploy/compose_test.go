package deploy_test

import (
	"context"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// collector is the only service without a health check: its image contains no program but the collector.
const collector = "collector"

// settings returns the content of the file that deploy/secrets.sh writes.
func settings(t *testing.T) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "env")
	cmd := exec.Command("sh", "secrets.sh", file)
	cmd.Env = append(os.Environ(), "BERTH="+binary(t, "berth"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	env, err := dotenv.Read(file)
	require.NoError(t, err)
	return env
}

// load returns docker-compose.yml as `docker compose` reads it with these settings and no other variables.
func load(t *testing.T, env map[string]string) (*types.Project, error) {
	t.Helper()
	var variables []string
	for name, value := range env {
		variables = append(variables, name+"="+value)
	}
	o, err := cli.NewProjectOptions([]string{filepath.Join("..", "docker-compose.yml")},
		cli.WithEnv(variables), cli.WithDefaultProfiles(), cli.WithResolvedPaths(true))
	require.NoError(t, err)
	return o.LoadProject(context.Background())
}

func loaded(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, settings(t))
	require.NoError(t, err)
	return p
}

// binary returns the path of a program that `make build` writes.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "bin", name))
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "run `make build`")
	return path
}

// X2: without a secret, nothing starts and the message names the variable and what to do.
func TestCompose_MissingSecret_ErrorNamesIt(t *testing.T) {
	t.Parallel()
	complete := settings(t)
	secret := regexp.MustCompile(`(?m)^\w+_(PASSWORD|SECRET|TOKEN)=$`)
	text, err := os.ReadFile("example.env")
	require.NoError(t, err)
	names := secret.FindAllString(string(text), -1)
	require.Len(t, names, 9)
	for _, name := range names {
		name = strings.TrimSuffix(name, "=")
		require.NotEmpty(t, complete[name], "secrets.sh sets %s", name)
		env := maps.Clone(complete)
		delete(env, name)
		_, err := load(t, env)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "deploy/secrets.sh")
	}
}

func TestSecrets_ExistingFile_IsKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte("mine\n"), 0o600))
	cmd := exec.Command("sh", "secrets.sh", file)
	cmd.Env = append(os.Environ(), "BERTH="+binary(t, "berth"))
	require.Error(t, cmd.Run())
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "mine\n", string(kept))
}

func TestCompose_Settings_AreAllUsed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docker-compose.yml"))
	require.NoError(t, err)
	for name := range settings(t) {
		if name != "COMPOSE_PROFILES" {
			require.Contains(t, string(text), "${"+name+":", "example.env: no effect")
		}
	}
	for _, used := range regexp.MustCompile(`\$\{(\w+)`).FindAllStringSubmatch(string(text), -1) {
		require.Contains(t, settings(t), used[1], "example.env does not explain it")
	}
}

func TestCompose_Images_ArePinned(t *testing.T) {
	t.Parallel()
	exact := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-\w+)?$`)
	for name, s := range loaded(t).Services {
		if s.Build == nil {
			require.Regexp(t, exact, s.Image, name)
			continue
		}
		require.NoError(t, exists(s.Build.Context, "Dockerfile"), name)
		require.Contains(t, stages(t), s.Build.Target, name)
	}
}

func TestCompose_Dependencies_AreHealthy(t *testing.T) {
	t.Parallel()
	p := loaded(t)
	for name, s := range p.Services {
		for needed, dependency := range s.DependsOn {
			require.Contains(t, p.Services, needed, name)
			switch dependency.Condition {
			case types.ServiceConditionHealthy:
				require.NotNil(t, p.Services[needed].HealthCheck, "%s waits for the health of %s", name, needed)
			case types.ServiceConditionCompletedSuccessfully:
				require.True(t, job(p.Services[needed]), "%s waits for the end of %s", name, needed)
			default:
				require.Fail(t, "starts too early", "%s after %s: %s", name, needed, dependency.Condition)
			}
		}
		if job(s) || name == collector {
			continue
		}
		require.NotNil(t, s.HealthCheck, name)
		require.Equal(t, types.RestartPolicyUnlessStopped, s.Restart, name)
		require.NotNil(t, s.Deploy, "%s: no memory limit", name)
		require.Positive(t, int64(s.Deploy.Resources.Limits.MemoryBytes), name)
	}
}

// job reports whether a service ends after it has done its work.
func job(s types.ServiceConfig) bool {
	return strings.HasPrefix(s.Restart, types.RestartPolicyOnFailure)
}

func TestCompose_Volumes_Exist(t *testing.T) {
	t.Parallel()
	p := loaded(t)
	for name, s := range p.Services {
		var mounted []string
		for _, v := range s.Volumes {
			mounted = append(mounted, v.Target)
			switch v.Type {
			case types.VolumeTypeBind:
				require.NoError(t, exists(v.Source), name)
				require.True(t, v.ReadOnly, "%s: %s", name, v.Source)
			case types.VolumeTypeVolume:
				require.Contains(t, p.Volumes, v.Source, name)
			}
		}
		// Files that commands and settings name are mounted.
		for _, text := range append(slices.Clone(s.Command), values(s)...) {
			for _, file := range regexp.MustCompile(`/etc/[\w./-]+\.\w+`).FindAllString(text, -1) {
				under := func(target string) bool { return file == target || strings.HasPrefix(file, target+"/") }
				require.True(t, slices.ContainsFunc(mounted, under), "%s: %s is not mounted", name, file)
			}
		}
	}
}

func values(s types.ServiceConfig) []string {
	var all []string
	for _, v := range s.Environment {
		if v != nil {
			all = append(all, *v)
		}
	}
	return all
}

func TestCompose_PublishedPorts_AreLocal(t *testing.T) {
	t.Parallel()
	p := loaded(t)
	published := map[string]string{}
	for name, s := range p.Services {
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, name)
			require.Contains(t, listening(t, p)[name], int(port.Target), name)
			key := port.Published + "/" + port.Protocol
			require.NotContains(t, published, key, "%s and %s", name, published[key])
			published[key] = name
		}
	}
	require.Len(t, published, 7)
}

// TestCompose_Addresses_AreServed finds every address of another service, in commands, variables and configuration files.
func TestCompose_Addresses_AreServed(t *testing.T) {
	t.Parallel()
	p := loaded(t)
	ports := listening(t, p)
	addresses := regexp.MustCompile(`\b([a-z][a-z-]*):(\d{2,5})\b`)
	texts := map[string]string{}
	for name, s := range p.Services {
		texts[name] = strings.Join(append(values(s), s.Command...), "\n")
	}
	for _, file := range []string{
		"collector/collector.yaml", "prometheus/prometheus.yml", "grafana/provisioning/datasources/datasources.yaml",
	} {
		b, err := os.ReadFile(filepath.FromSlash(file))
		require.NoError(t, err)
		texts[file] = string(b)
	}
	found := 0
	for name, text := range texts {
		for _, match := range addresses.FindAllStringSubmatch(text, -1) {
			host := match[1]
			port, err := strconv.Atoi(match[2])
			require.NoError(t, err)
			if host == "localhost" {
				continue
			}
			require.Contains(t, p.Services, host, "%s: %s", name, match[0])
			require.Contains(t, ports[host], port, "%s: %s", name, match[0])
			found++
		}
	}
	require.Greater(t, found, 20)
	// The metrics of each berth process are scraped.
	for name, s := range p.Services {
		if s.Environment["BERTH_METRICS_ADDR"] != nil {
			require.Regexp(t, `(?m)names: \[.*\b`+name+`\b`, texts["prometheus/prometheus.yml"])
		}
	}
}

// listening returns the ports on which each service listens: those of the images, of berth's settings, and of the
// configuration files.
func listening(t *testing.T, p *types.Project) map[string][]int {
	t.Helper()
	ports := map[string][]int{
		"postgres": {5432}, "redis": {6379}, "temporal": {7233, 7243}, "temporal-ui": {8080},
		"livekit": {7880, 7881, 7882}, "jaeger": {4317, 4318, 16686, 13133}, "prometheus": {9090}, "grafana": {3000},
		collector: {8888},
	}
	for name, s := range p.Services {
		for _, text := range append(values(s), s.Command...) {
			if host, port, err := net.SplitHostPort(text); err == nil && host == "0.0.0.0" {
				n, err := strconv.Atoi(port)
				require.NoError(t, err)
				ports[name] = append(ports[name], n)
			}
		}
	}
	text, err := os.ReadFile("collector/collector.yaml")
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(`endpoint: "0\.0\.0\.0:(\d+)"`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		ports[collector] = append(ports[collector], n)
	}
	return ports
}

// TestCompose_HealthChecks_UseKnownPaths compares the URLs of health checks with the paths that each server documents. The
// checks of berth and LiveKit are run by TestCompose_Commands_RunNatively.
func TestCompose_HealthChecks_UseKnownPaths(t *testing.T) {
	t.Parallel()
	p := loaded(t)
	paths := map[string]string{
		"temporal": "7243/api/v1/cluster-info", "temporal-ui": "8080/healthz", "livekit": "7880/", "jaeger": "13133/status",
		"prometheus": "9090/-/ready", "grafana": "3000/api/health",
	}
	for name, s := range p.Services {
		if s.HealthCheck == nil {
			continue
		}
		if isBerth(s) {
			require.Equal(t, []string{"CMD", "berth", "health"}, []string(s.HealthCheck.Test[:3]), name)
			continue
		}
		if path, ok := paths[name]; ok {
			require.Equal(t, "http://127.0.0.1:"+path, s.HealthCheck.Test[len(s.HealthCheck.Test)-1], name)
			continue
		}
		require.Contains(t, []string{"postgres", "redis"}, name, "its health check has a path that the test does not know")
	}
}

// isBerth reports whether a service runs this project's binary.
func isBerth(s types.ServiceConfig) bool { return s.Build != nil }

// TestCompose_StopTimes_ExceedDrain keeps a worker or node from being killed while it hands its work over.
func TestCompose_StopTimes_ExceedDrain(t *testing.T) {
	t.Parallel()
	for name, s := range loaded(t).Services {
		if isBerth(s) {
			require.NotNil(t, s.StopGracePeriod, name)
			require.GreaterOrEqual(t, time.Duration(*s.StopGracePeriod), 40*time.Second, name)
			require.True(t, s.ReadOnly, name)
			require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		}
	}
}

func exists(path ...string) error {
	_, err := os.Stat(filepath.Join(path...))
	return err
}
