package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// X2: the collector accepts a component only if its distribution contains it and its name is defined.
func TestCollector_Pipelines_UseDefinedComponents(t *testing.T) {
	t.Parallel()
	var config struct {
		Receivers, Processors, Exporters, Extensions map[string]any
		Service                                      struct {
			Extensions []string
			Pipelines  map[string]struct{ Receivers, Processors, Exporters []string }
			Telemetry  any
		}
	}
	decode(t, "collector/collector.yaml", &config)
	require.NotEmpty(t, config.Service.Pipelines)
	used := map[string]bool{}
	check := func(kind string, names []string, defined map[string]any) {
		for _, name := range names {
			require.Contains(t, defined, name, kind)
			used[kind+name] = true
		}
	}
	for _, p := range config.Service.Pipelines {
		require.NotEmpty(t, p.Receivers)
		require.NotEmpty(t, p.Exporters)
		check("receivers", p.Receivers, config.Receivers)
		check("processors", p.Processors, config.Processors)
		check("exporters", p.Exporters, config.Exporters)
	}
	check("extensions", config.Service.Extensions, config.Extensions)
	// The components of distributions/otelcol/manifest.yaml in opentelemetry-collector-releases v0.159.0.
	distribution := map[string][]string{
		"receivers":  {"nop", "otlp", "hostmetrics", "jaeger", "kafka", "prometheus", "zipkin"},
		"processors": {"batch", "memory_limiter", "attributes", "resource", "span", "probabilistic_sampler", "filter"},
		"exporters":  {"debug", "nop", "otlp_grpc", "otlp_http", "file", "kafka", "prometheus", "prometheusremotewrite", "zipkin"},
		"extensions": {"zpages", "health_check", "pprof"},
	}
	for kind, defined := range map[string]map[string]any{
		"receivers": config.Receivers, "processors": config.Processors, "exporters": config.Exporters, "extensions": config.Extensions,
	} {
		for name := range defined {
			require.True(t, used[kind+name], "%s %s is not used", kind, name)
			component, _, _ := strings.Cut(name, "/")
			require.Contains(t, distribution[kind], component)
		}
	}
}

func TestPrometheus_Config_IsAccepted(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	require.NoError(t, err, "apt-get install prometheus")
	out, err := exec.CommandContext(t.Context(), promtool, "check", "config", "prometheus/prometheus.yml").CombinedOutput()
	require.NoError(t, err, string(out))
}

// B4: each alert fires when it has to, and only then.
func TestPrometheus_Alerts_FireWhenDue(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	require.NoError(t, err, "apt-get install prometheus")
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", "prometheus/rules_test.yml").CombinedOutput()
	require.NoError(t, err, string(out))
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	decode(t, "prometheus/rules_test.yml", &tests)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, at := range test.AlertRuleTest {
			fires[at.Alertname] = fires[at.Alertname] || len(at.ExpAlerts) > 0
			rests[at.Alertname] = rests[at.Alertname] || len(at.ExpAlerts) == 0
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	decode(t, "prometheus/rules.yml", &rules)
	require.NotEmpty(t, rules.Groups)
	for _, group := range rules.Groups {
		require.NotEmpty(t, group.Rules)
		for _, rule := range group.Rules {
			requireMetrics(t, rule.Expr)
			require.True(t, fires[rule.Alert] && rests[rule.Alert], "%s is not tested in both states", rule.Alert)
		}
	}
}

func TestGrafana_Dashboard_UsesExistingMetrics(t *testing.T) {
	t.Parallel()
	var sources struct {
		Datasources []struct{ UID, Type string }
	}
	decode(t, "grafana/provisioning/datasources/datasources.yaml", &sources)
	var uids []string
	for _, s := range sources.Datasources {
		uids = append(uids, s.UID)
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decode(t, "grafana/provisioning/dashboards/dashboards.yaml", &providers)
	require.Equal(t, "/etc/grafana/dashboards", providers.Providers[0].Options.Path, "where docker-compose.yml mounts them")

	var dashboard struct {
		UID, Title string
		Panels     []struct {
			Title      string
			Datasource struct{ UID string }
			Targets    []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("grafana/dashboards/berth.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		require.Contains(t, uids, panel.Datasource.UID, panel.Title)
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			requireMetrics(t, target.Expr)
		}
	}
}

// requireMetrics checks that a query names at least one metric, and only those of docs/telemetry.md.
func requireMetrics(t *testing.T, query string) {
	t.Helper()
	docs, err := os.ReadFile(filepath.Join("..", "docs", "telemetry.md"))
	require.NoError(t, err)
	rows := map[string]string{} // by metric
	for line := range strings.Lines(string(docs)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[name[1]] = cells[2]
		}
	}
	require.Greater(t, len(rows), 15)
	query = regexp.MustCompile(`\bby \([^)]*\)`).ReplaceAllString(query, "") // labels
	named := regexp.MustCompile(`\b(berth|gen_ai|db|http)_\w+`).FindAllString(query, -1)
	require.NotEmpty(t, named, query)
	for _, name := range named {
		histogram := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if histogram != name {
			require.Contains(t, rows[histogram], "histogram", name)
			continue
		}
		require.Contains(t, rows, name)
		require.NotEqual(t, "histogram", strings.TrimSpace(rows[name]), name)
	}
}

// The names are those that workflows are started with.
func TestTemporal_Namespace_HasTheSearchAttributes(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("temporal/namespace.sh")
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join("..", "workflows", "names.go"))
	require.NoError(t, err)
	names := func(pattern string, text []byte) (found []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			found = append(found, string(m[1]))
		}
		slices.Sort(found)
		return found
	}
	want := names(`Search\w+\s*= "(berth\w+)"`, source)
	require.NotEmpty(t, want)
	require.Equal(t, want, names(`--name (\w+) --type Keyword`, script))
}

func TestScripts_Syntax_IsValid(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("*/*.sh")
	require.NoError(t, err)
	for _, script := range append(scripts, "secrets.sh") {
		out, err := exec.CommandContext(t.Context(), "sh", "-n", script).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	f, err := os.Open(filepath.FromSlash(file))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	require.NoError(t, yaml.NewDecoder(f).Decode(into), file)
}
