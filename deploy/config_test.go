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
	for _, rule := range alerts(t) {
		requireMetrics(t, rule.Expr)
		require.True(t, fires[rule.Alert] && rests[rule.Alert], "%s is not tested in both states", rule.Alert)
	}
}

// alert is an alert of rules.yml.
type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var rules struct {
		Groups []struct{ Rules []alert }
	}
	decode(t, "prometheus/rules.yml", &rules)
	var all []alert
	for _, group := range rules.Groups {
		require.NotEmpty(t, group.Rules)
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// X3: each alert leads to its runbook. Sections are in the order of the alerts.
func TestRunbooks_Alerts_HaveOneSectionEach(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(filepath.Join("..", "docs", "runbooks.md"))
	require.NoError(t, err)
	var names, sections []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		require.Contains(t, []string{"critical", "warning"}, a.Labels["severity"], a.Alert)
		require.NotEmpty(t, a.Annotations["summary"], a.Alert)
		require.Contains(t, a.Annotations["description"], "$value", a.Alert)
		require.Equal(t, "docs/runbooks.md#"+strings.ToLower(a.Alert), a.Annotations["runbook_url"])
	}
	for _, part := range strings.Split(string(docs), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		sections = append(sections, title)
		for _, paragraph := range []string{"**Users**", "**Cause.**", "**Do.**", "**Ends**"} {
			require.Contains(t, text, "\n"+paragraph, title)
		}
	}
	require.Equal(t, names, sections)
	operations, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	require.NoError(t, err)
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`(\\w+)`\\]\\(runbooks\\.md#(\\w+)\\) \\| (\\w+) \\|").FindAllStringSubmatch(string(operations), -1) {
		listed = append(listed, row[1])
		require.Equal(t, strings.ToLower(row[1]), row[2])
		require.True(t, slices.ContainsFunc(alerts(t), func(a alert) bool { return a.Alert == row[1] && a.Labels["severity"] == row[3] }), row[1])
	}
	require.Equal(t, names, listed, "the table has every alert")
	for _, link := range regexp.MustCompile(`\]\(#(\w+)\)`).FindAllStringSubmatch(string(docs), -1) {
		require.True(t, slices.ContainsFunc(names, func(n string) bool { return strings.ToLower(n) == link[1] }), link[1])
	}
	for _, block := range regexp.MustCompile("(?s)\n```\n(.*?)```").FindAllStringSubmatch(string(docs), -1) {
		if !strings.HasPrefix(block[1], "redis-cli") {
			requireMetrics(t, block[1])
		}
	}
}

// panel is a panel of the dashboard, or one of its rows.
type panel struct {
	Title, Type string
	Datasource  struct{ UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

func dashboard(t *testing.T) []panel {
	t.Helper()
	var d struct {
		UID, Title string
		Templating struct {
			List []struct {
				Name, Type, Query string
				Current           struct{ Value string }
			}
		}
		Panels []panel
	}
	text, err := os.ReadFile("grafana/dashboards/berth.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	require.Len(t, d.Templating.List, 1)
	require.Equal(t, "datasource", d.Templating.List[0].Name)
	require.Equal(t, "datasource", d.Templating.List[0].Type)
	var sources struct {
		Datasources []struct{ UID, Type string }
	}
	decode(t, "grafana/provisioning/datasources/datasources.yaml", &sources)
	require.True(t, slices.ContainsFunc(sources.Datasources, func(s struct{ UID, Type string }) bool {
		return s.UID == d.Templating.List[0].Current.Value && s.Type == d.Templating.List[0].Query
	}))
	require.NotEmpty(t, d.Panels)
	return d.Panels
}

func TestGrafana_Dashboard_UsesExistingMetrics(t *testing.T) {
	t.Parallel()
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decode(t, "grafana/provisioning/dashboards/dashboards.yaml", &providers)
	require.Equal(t, "/etc/grafana/dashboards", providers.Providers[0].Options.Path, "where docker-compose.yml mounts them")

	type recording struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rows []string
	var queries []recording
	taken := map[[2]int]string{}
	for _, p := range dashboard(t) {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Less(t, x, 24, p.Title)
				require.Empty(t, taken[[2]int{x, y}], "%s covers another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			requireMetrics(t, target.Expr)
			queries = append(queries, recording{"query", target.Expr})
		}
	}
	require.Equal(t, []string{
		"Overview", "Tasks and models", "Turns and nodes", "Conferences and participants", "Infrastructure", "Reconciliation",
	}, rows)

	// promtool checks the syntax of queries in rules only.
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": queries}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool, err := exec.LookPath("promtool")
	require.NoError(t, err, "apt-get install prometheus")
	out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "--lint=none", file).CombinedOutput()
	require.NoError(t, err, string(out))
}

// The indicators of the design are on the dashboard, with the queries that are documented.
func TestTelemetry_Indicators_AreOnTheDashboard(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(filepath.Join("..", "docs", "telemetry.md"))
	require.NoError(t, err)
	queries := map[string]string{} // by title
	for _, p := range dashboard(t) {
		if len(p.Targets) == 1 {
			queries[p.Title] = p.Targets[0].Expr
		}
	}
	indicators := regexp.MustCompile("(?m)^- \\*\\*(.+)\\*\\*.*:\n  `(.+)`$").FindAllStringSubmatch(string(docs), -1)
	require.Len(t, indicators, 5)
	for _, i := range indicators {
		require.Equal(t, i[2], queries[i[1]], i[1])
	}
}

// The documented metrics of berth are those that it has, under the names of the Prometheus exporter.
func TestTelemetry_Metrics_AreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{".."}, path...)...))
		require.NoError(t, err)
		return string(text)
	}
	want := map[string]string{} // type by name
	for _, m := range regexp.MustCompile(`= (counter|gauge|bytes|seconds|ratio|histogram|tokens)\("([a-z._]+)"`).FindAllStringSubmatch(read("internal", "metrics", "metrics.go"), -1) {
		name := strings.ReplaceAll(m[2], ".", "_")
		switch m[1] {
		case "counter":
			want[name+"_total"] = "counter"
		case "gauge":
			want[name] = "gauge"
		case "bytes":
			want[name+"_bytes"] = "gauge"
		case "seconds":
			want[name+"_seconds"] = "gauge"
		case "ratio":
			want[name+"_ratio"] = "gauge"
		case "histogram":
			want[name+"_seconds"] = "histogram"
		case "tokens": // the exporter adds no unit for annotations such as {token}
			want[name] = "histogram"
		}
	}
	require.Greater(t, len(want), 25)
	recovery := regexp.MustCompile(`metricRecovery = "(\w+)"`).FindStringSubmatch(read("workflows", "names.go"))
	require.NotNil(t, recovery)
	want[recovery[1]+"_seconds"] = "histogram"
	busy := regexp.MustCompile(`metricBusy = "(\w+)"`).FindStringSubmatch(read("workflows", "names.go"))
	require.NotNil(t, busy)
	want[busy[1]+"_total"] = "counter"
	documented := documentedMetrics(t)
	for name, kind := range want {
		require.Contains(t, documented[name], kind, name)
	}
	for name := range documented {
		if strings.HasPrefix(name, "berth_") {
			require.Contains(t, want, name)
		}
	}
}

// documentedMetrics returns the types of the metrics of docs/telemetry.md by name.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	docs, err := os.ReadFile(filepath.Join("..", "docs", "telemetry.md"))
	require.NoError(t, err)
	types := map[string]string{}
	for line := range strings.Lines(string(docs)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			types[name[1]] = cells[2]
		}
	}
	require.Greater(t, len(types), 15)
	return types
}

// requireMetrics checks that a query names at least one metric, and only those of docs/telemetry.md.
func requireMetrics(t *testing.T, query string) {
	t.Helper()
	types := documentedMetrics(t)
	// Of Prometheus's client library and of Temporal's SDK, which the document does not list.
	types["process_cpu_seconds_total"], types["process_resident_memory_bytes"] = "counter", "gauge"
	types["temporal_workflow_task_execution_failed_total"] = "counter"
	query = regexp.MustCompile(`\bby \([^)]*\)|\{[^}]*\}`).ReplaceAllString(query, "") // labels
	named := regexp.MustCompile(`\b(berth|gen_ai|db|http|process|temporal)_\w+`).FindAllString(query, -1)
	require.NotEmpty(t, named, query)
	for _, name := range named {
		histogram := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if histogram != name {
			require.Contains(t, types[histogram], "histogram", name)
			continue
		}
		require.Contains(t, types, name)
		require.NotEqual(t, "histogram", strings.TrimSpace(types[name]), name)
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
