package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFigure_Goal_MetOrMissed(t *testing.T) { // X9
	t.Parallel()
	for _, c := range []struct {
		figure       Figure
		goal         goal
		text, result string
	}{
		{Figure{Unit: "ms", Value: 4.9}, maximum(5), "<= 5 ms", "met"},
		{Figure{Unit: "ms", Value: 5.1}, maximum(5), "<= 5 ms", "missed"},
		{Figure{Unit: "%", Value: 98}, minimum(98), ">= 98 %", "met"},
		{Figure{Unit: "%", Value: 46}, minimum(98), ">= 98 %", "missed"},
		{Figure{Value: 0}, maximum(0), "<= 0", "met"},
		{Figure{Value: 1}, maximum(0), "<= 0", "missed"},
		{Figure{Unit: "/s", Value: 20}.beside("bare", 25), minRatio(0.8), "ratio >= 0.8", "met"},
		{Figure{Unit: "/s", Value: 19}.beside("bare", 25), minRatio(0.8), "ratio >= 0.8", "missed"},
		{Figure{Unit: "us", Value: 13}.beside("bare", 10), maxRatio(1.3), "ratio <= 1.3", "met"},
		{Figure{Unit: "us", Value: 14}.beside("bare", 10), maxRatio(1.3), "ratio <= 1.3", "missed"},
		{Figure{Unit: "ms", Value: 4}.beside("bare", 1), maxMore(3), "difference <= 3 ms", "met"},
		{Figure{Unit: "ms", Value: 4.1}.beside("bare", 1), maxMore(3), "difference <= 3 ms", "missed"},
	} {
		f := c.figure.within(c.goal)
		require.Equal(t, c.text, f.Goal)
		require.Equal(t, c.result, f.result(), "%+v", f)
	}
	require.Empty(t, Figure{Value: 1}.result())
	require.Zero(t, Figure{Value: 1}.beside("nothing", 0).Ratio)
}

func TestNumber_EachSize_ThreeDigits(t *testing.T) { // X9
	t.Parallel()
	for v, text := range map[float64]string{
		0: "0", 5: "5", 0.0049: "0.0049", 0.12345: "0.123", 1.2345: "1.23", 12.345: "12.3", 123.45: "123", 10_000: "10000", -12.345: "-12.3",
	} {
		require.Equal(t, text, number(v))
	}
	require.Equal(t, "1.50 ms", withUnit(milliseconds(1500*time.Microsecond), "ms"))
	require.Equal(t, "3", withUnit(3, ""))
}

func TestQuantiles_TwoSides_EachBesideItsBaseline(t *testing.T) { // X9
	t.Parallel()
	var measured, bare latencies
	for i := range 100 {
		measured, bare = append(measured, time.Duration(2*i)*time.Millisecond), append(bare, time.Duration(i)*time.Millisecond)
	}
	r := &Run{}
	r.quantiles("call", measured, "bare call", bare, maxRatio(2))
	require.Len(t, r.figures, 2)
	require.Equal(t, "call, p50", r.figures[0].Name)
	require.InDelta(t, 100, r.figures[0].Value, 0.001)
	require.InDelta(t, 50, r.figures[0].Baseline, 0.001)
	require.Equal(t, "met", r.figures[0].result())
	require.InDelta(t, 198, r.figures[1].Value, 0.001)
	require.Empty(t, r.figures[1].Goal)
}

// sample is a report with all kinds of figures.
func sample() Report {
	e := Environment{Version: "v1", Commit: "abc", Cores: 2, MemoryGiB: 4, Redis: "7.0", Temporal: "1.32", Database: "SQLite"}
	began := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	return Report{Parts: []Part{
		{Name: "chain", Title: "chains", Environment: e, Began: began, Seconds: 12, Load: [2]float64{0.1, 1.5}, Figures: []Figure{
			Figure{Name: "chains", Unit: "/s", Value: 19}.beside("bare workflows", 25).within(minRatio(0.8)),
			{Name: "memory", Unit: "bytes", Value: 300},
			Figure{Name: "beside", Unit: "ms", Value: 2}.without("peer", "Node is not installed"),
		}},
		{Name: "slots", Title: "sharing", Environment: e, Began: began, Figures: []Figure{Figure{Name: "over"}.within(maximum(0))}},
	}}
}

func TestReport_WrittenAndRead_Equal(t *testing.T) { // X9
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.json")
	empty, err := ReadReport(file)
	require.NoError(t, err)
	require.Empty(t, empty.Parts)
	require.NoError(t, sample().Write(file))
	read, err := ReadReport(file)
	require.NoError(t, err)
	require.Equal(t, sample(), read)

	b, err := os.ReadFile(file) //nolint:gosec // the test's own file
	require.NoError(t, err)
	var raw struct {
		Benchmarks []struct {
			Name        string
			Environment map[string]any
			Load        []float64
			Figures     []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b, &raw))
	require.Equal(t, map[string]any{
		"name": "chains", "unit": "/s", "value": 19.0, "baseline": 25.0, "baselineName": "bare workflows", "ratio": 0.76,
		"goal": "ratio >= 0.8", "met": false,
	}, raw.Benchmarks[0].Figures[0])
	require.Equal(t, map[string]any{"name": "memory", "unit": "bytes", "value": 300.0}, raw.Benchmarks[0].Figures[1])
	require.Equal(t, "Node is not installed", raw.Benchmarks[0].Figures[2]["missing"])
	require.Equal(t, "7.0", raw.Benchmarks[0].Environment["redis"])
	require.Equal(t, []float64{0.1, 1.5}, raw.Benchmarks[0].Load)

	require.NoError(t, os.WriteFile(file, []byte("no report"), 0o600))
	_, err = ReadReport(file)
	require.ErrorContains(t, err, "not a report")
}

func TestReport_SameBenchmarkAgain_Replaced(t *testing.T) { // X9
	t.Parallel()
	r := sample()
	r.Put(Part{Name: "chain", Title: "again"})
	r.Put(Part{Name: "stream"})
	require.Len(t, r.Parts, 3)
	require.Equal(t, "again", r.Parts[0].Title)
	require.Equal(t, "stream", r.Parts[2].Name)
}

func TestReport_Printed_ShowsEveryFigure(t *testing.T) { // X9
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, sample().Print(&out))
	text := out.String()
	require.Equal(t, 1, strings.Count(text, "commit abc"), "once for both benchmarks:\n%s", text)
	require.Contains(t, text, "2 cores, 4 GiB of memory")
	require.Contains(t, text, "load average 0.1 before, 1.5 after")
	require.Regexp(t, `(?m)^  chains +19 /s +25 /s +0.76 +ratio >= 0.8 +missed +bare workflows$`, text)
	require.Regexp(t, `(?m)^  memory +300 bytes`, text)
	require.Regexp(t, `(?m)^  beside +2 ms +not measured: Node is not installed +peer$`, text)
	require.Regexp(t, `(?m)^  over +0 +<= 0 +met`, text)
}

func TestPages_FigureMissing_Fails(t *testing.T) { // X9
	t.Parallel()
	err := sample().WriteDocs(t.TempDir())
	require.ErrorContains(t, err, "the report has no figure")
}

// The pages are never edited: `bin/berth-bench --json docs/measurements.json --docs docs` writes them.
func TestPages_CheckedIn_HaveTheFiguresOfTheReport(t *testing.T) { // X9
	t.Parallel()
	const dir = "../../docs"
	report, err := ReadReport(filepath.Join(dir, "measurements.json"))
	require.NoError(t, err)
	require.Len(t, report.Parts, len(Names()), "every benchmark")
	out := t.TempDir()
	require.NoError(t, report.WriteDocs(out))
	for _, page := range []string{"measurements.md", "sizing.md"} {
		written, err := os.ReadFile(filepath.Join(out, page)) //nolint:gosec // the test's own file
		require.NoError(t, err)
		checkedIn, err := os.ReadFile(filepath.Join(dir, page))
		require.NoError(t, err)
		require.True(t, bytes.Equal(written, checkedIn), "%s does not have the figures of measurements.json: write it again", page)
	}
}

func TestScript_Default_RunsEveryBenchmark(t *testing.T) { // X9
	t.Parallel()
	script, err := os.ReadFile("../../scripts/bench.sh")
	require.NoError(t, err)
	require.Contains(t, string(script), "set -- "+strings.Join(Names(), " ")+"\n")
}
