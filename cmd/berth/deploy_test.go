package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// container is one that runs berth in docker-compose.yml or on Kubernetes.
type container struct {
	args []string
	env  map[string]string
}

// X2: every command line of the deployments is accepted by the command-line parser, with its environment, and every variable
// is a setting of that command or one of OpenTelemetry's.
func TestCommands_OfDeployments_AreValid(t *testing.T) {
	root := filepath.Join("..", "..")
	all := map[string]container{}
	composeContainers(t, root, all)
	kubernetesContainers(t, root, all)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			mounted := map[string]string{
				"BERTH_DATABASE_FILE": "postgres://berth:password@postgres/berth", "BERTH_REDIS_PASSWORD_FILE": "password", "BERTH_AUTH_SECRET_FILE": strings.Repeat("s", 32),
			}
			for variable, value := range c.env {
				if secret, ok := mounted[variable]; ok {
					value = filepath.Join(t.TempDir(), "secret")
					require.NoError(t, os.WriteFile(value, []byte(secret), 0o600))
				}
				t.Setenv(variable, value)
			}
			parser, err := kong.New(&commands{}, kong.Name("berth"), enums())
			require.NoError(t, err)
			parsed, err := parser.Parse(c.args)
			require.NoError(t, err, "berth %q", c.args)
			known := openTelemetryVariables()
			for _, group := range parsed.Selected().AllFlags(true) {
				for _, flag := range group {
					known = append(known, flag.Envs...)
				}
			}
			for variable := range c.env {
				require.Contains(t, known, variable, "not a setting of berth %s", c.args[0])
			}
		})
	}
	require.Len(t, all, 12)
}

// openTelemetryVariables lists those that the deployments may set, from OpenTelemetry's "Environment Variable
// Specification".
func openTelemetryVariables() []string {
	return []string{
		"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
		"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
	}
}

func composeContainers(t *testing.T, root string, all map[string]container) {
	t.Helper()
	var file struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Environment map[string]string
		}
	}
	require.NoError(t, yaml.Unmarshal(read(t, root, "docker-compose.yml"), &file))
	for name, service := range file.Services {
		if !strings.HasPrefix(service.Image, "berth") || strings.HasPrefix(service.Image, "berth-sim") { // a program of its own
			continue
		}
		for i := range service.Command {
			service.Command[i] = interpolate(service.Command[i])
		}
		for variable := range service.Environment {
			service.Environment[variable] = interpolate(service.Environment[variable])
		}
		all["compose "+name] = container{service.Command, service.Environment}
	}
}

// interpolate replaces ${NAME:-default} by its default, and other variables, which are secrets, by 64 digits.
func interpolate(s string) string {
	s = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(s, "$1")
	s = regexp.MustCompile(`\$\{\w+:\?[^}]*\}`).ReplaceAllString(s, strings.Repeat("0", 64))
	return strings.ReplaceAll(s, "$$", "$")
}

func kubernetesContainers(t *testing.T, root string, all map[string]container) {
	t.Helper()
	base := filepath.Join(root, "deploy", "kubernetes", "base")
	for _, file := range []string{"api.yaml", "apertium.yaml", "media.yaml"} {
		for name, c := range podContainers(t, base, file) {
			all["kubernetes "+name] = c
		}
	}
	groups, err := filepath.Glob(filepath.Join(base, "workers", "*", "kustomization.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, groups)
	for _, group := range groups {
		queues := regexp.MustCompile(`value: (--\S+)`).FindSubmatch(read(t, group))
		require.NotNil(t, queues, group)
		c := podContainers(t, base, "worker/worker.yaml")["worker"]
		c.args = append(slices.Clone(c.args), string(queues[1]))
		all["kubernetes worker "+filepath.Base(filepath.Dir(group))] = c
	}
}

// podContainers reads the containers of a manifest that run berth. A value from a secret or a field is 64 digits.
func podContainers(t *testing.T, base, file string) map[string]container {
	t.Helper()
	found := map[string]container{}
	documents := yaml.NewDecoder(bytes.NewReader(read(t, base, file)))
	for {
		var workload struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Name, Image string
							Args        []string
							Env         []struct{ Name, Value string }
							EnvFrom     []struct {
								ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
							} `yaml:"envFrom"`
						}
					}
				}
			}
		}
		err := documents.Decode(&workload)
		if errors.Is(err, io.EOF) {
			return found
		}
		var mismatch *yaml.TypeError // another kind of object
		if errors.As(err, &mismatch) {
			continue
		}
		require.NoError(t, err, file)
		for _, c := range workload.Spec.Template.Spec.Containers {
			if !strings.HasPrefix(c.Image, "berth") {
				continue
			}
			env := map[string]string{}
			for _, from := range c.EnvFrom {
				name := map[string]string{"berth": "settings.env", "berth-servers": "servers.env"}[from.ConfigMapRef.Name]
				for line := range strings.Lines(string(read(t, base, name))) {
					if variable, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
						env[variable] = value
					}
				}
			}
			for _, v := range c.Env {
				if v.Value == "" {
					v.Value = secretValue(v.Name)
				}
				env[v.Name] = v.Value
			}
			found[c.Name] = container{c.Args, env}
		}
	}
}

func secretValue(variable string) string {
	switch variable {
	case "BERTH_DATABASE":
		return "postgres://berth@db/berth"
	case "BERTH_PAYLOAD_KEYS": // optional
		return ""
	default:
		return strings.Repeat("0", 64)
	}
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return b
}
