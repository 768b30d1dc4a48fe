//go:build faults

package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"berth/internal/testprocess"
)

// shorter is how much shorter the windows of alerts are than the shipped ones. Scrapes and evaluations are as much more frequent.
const shorter = 15

// monitoring is a Prometheus with the shipped alerts, whose windows are shorter, and an Alertmanager that notifies the test.
type monitoring struct {
	tb         testing.TB
	prometheus string // its address
	// notices has the alerts of each notification.
	notices chan notice
}

// notice is a change of an alert that Alertmanager has sent.
type notice struct {
	Status string            `json:"status"` // firing or resolved
	Labels map[string]string `json:"labels"`
	at     time.Time
}

// monitor scrapes the processes whose metrics are served at the given addresses, by name. The part of the name before the dash is
// the service.
func monitor(t *testing.T, processes map[string]string) *monitoring {
	t.Helper()
	m := &monitoring{tb: t, prometheus: freeAddr(t), notices: make(chan notice, 10_000)}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Alerts []notice }
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			for _, n := range body.Alerts {
				n.at = time.Now()
				m.notices <- n
			}
		}
	}))
	t.Cleanup(receiver.Close)
	dir, alertmanager := t.TempDir(), freeAddr(t)
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	type doc = map[string]any
	var targets []any
	for _, name := range slices.Sorted(maps.Keys(processes)) {
		service, _, _ := strings.Cut(name, "-")
		targets = append(targets, doc{"targets": []string{processes[name]}, "labels": doc{"service": service}})
	}
	shipped, err := os.ReadFile(filepath.Join("..", "deploy", "prometheus", "rules.yml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), shorten(t, shipped), 0o600))
	config := write("prometheus.yml", doc{
		"global":         doc{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "2s"},
		"rule_files":     []string{"rules.yml"},
		"alerting":       doc{"alertmanagers": []any{doc{"static_configs": []any{doc{"targets": []string{alertmanager}}}}}},
		"scrape_configs": []any{doc{"job_name": "berth", "static_configs": targets}},
	})
	route := write("alertmanager.yml", doc{
		"route":     doc{"receiver": "test", "group_by": []string{"..."}, "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"},
		"receivers": []any{doc{"name": "test", "webhook_configs": []any{doc{"url": receiver.URL, "send_resolved": true}}}},
	})
	m.start("prometheus-alertmanager", alertmanager, "--config.file="+route, "--storage.path="+filepath.Join(dir, "alertmanager"),
		"--web.listen-address="+alertmanager, "--cluster.listen-address=", "--log.level=error")
	m.start("prometheus", m.prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "prometheus"),
		"--web.listen-address="+m.prometheus, "--rules.alert.resend-delay=1s", "--log.level=error")
	return m
}

// start runs one of the programs of Debian's packages, which are ready in the same way.
func (m *monitoring) start(program, addr string, args ...string) {
	m.tb.Helper()
	path, err := exec.LookPath(program)
	require.NoError(m.tb, err, "apt-get install %s", program)
	testprocess.New(m.tb, program).Start(exec.Command(path, args...), time.Minute, func(ctx context.Context) error { //nolint:gosec,noctx // a test's own program
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/-/ready", http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", res.StatusCode)
		}
		return nil
	})
}

// shorten divides all durations of rules.
func shorten(t *testing.T, rules []byte) []byte {
	t.Helper()
	return regexp.MustCompile(`(\[|offset |for: )(\d+)(s|m|h)`).ReplaceAllFunc(rules, func(found []byte) []byte {
		parts := regexp.MustCompile(`^(.*?)(\d+[smh])$`).FindSubmatch(found)
		d, err := time.ParseDuration(string(parts[2]))
		require.NoError(t, err)
		return fmt.Appendf(nil, "%s%ds", parts[1], int((d / shorter).Seconds()))
	})
}

// query returns the values of an instant query by their labels, without those that are no number.
func (m *monitoring) query(query string) map[string]float64 {
	m.tb.Helper()
	res, err := http.Get("http://" + m.prometheus + "/api/v1/query?query=" + url.QueryEscape(query)) //nolint:noctx,gosec // a test's own server
	require.NoError(m.tb, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(m.tb, err)
	require.Equal(m.tb, http.StatusOK, res.StatusCode, "%s: %s", query, text)
	var body struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	require.NoError(m.tb, json.Unmarshal(text, &body))
	values := map[string]float64{}
	for _, r := range body.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		require.NoError(m.tb, err)
		if !math.IsNaN(v) {
			values[fmt.Sprint(r.Metric)] = v
		}
	}
	return values
}

// firing returns the names of the alerts that fire now.
func (m *monitoring) firing() []string {
	m.tb.Helper()
	var names []string
	for labels := range m.query(`count by (alertname) (ALERTS{alertstate="firing"})`) {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(labels, "map[alertname:"), "]"))
	}
	slices.Sort(names)
	return names
}

// panelQueries returns the queries of the dashboard by panel and letter.
func panelQueries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "grafana", "dashboards", "berth.json"))
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	queries := map[string]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries[p.Title+" "+target.RefID] = target.Expr
		}
	}
	require.Greater(t, len(queries), 50)
	return queries
}

// shippedAlerts returns the names of the shipped alerts.
func shippedAlerts(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "prometheus", "rules.yml"))
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllSubmatch(text, -1) {
		names = append(names, string(found[1]))
	}
	return names
}
