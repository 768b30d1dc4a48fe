package tests

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/bench"
)

func TestBench_Help_HasOnlyItsOwnFlags(t *testing.T) { // X9
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "../bin/berth-bench", "--help").CombinedOutput()
	require.NoError(t, err, "%s", out)
	var flags []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-h, )?--([a-z-]+)`).FindAllSubmatch(out, -1) {
		flags = append(flags, string(m[1]))
	}
	require.Equal(t, []string{"help", "scale", "json", "docs", "commit", "process", "version", "peer"}, flags, "%s", out)
}

func TestBench_OneBenchmark_ReportHasItsFigures(t *testing.T) { // X9
	t.Parallel()
	s := prepareStack(t, t.TempDir())
	t.Cleanup(s.model.Close)
	t.Cleanup(s.killAll)
	s.startInfra()
	file := filepath.Join(s.dir, "report.json")
	p := s.start("berth-bench", []string{"chain", "--scale", "0.01", "--json", file}, s.settings)
	s.eventually("the benchmark to end", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	require.Zero(t, p.cmd.ProcessState.ExitCode(), "%s", p.output())
	require.Contains(t, string(p.output()), "ratio >= 0.8")
	report, err := bench.ReadReport(file)
	require.NoError(t, err)
	require.Len(t, report.Parts, 1)
	part := report.Parts[0]
	require.NotEmpty(t, part.Environment.Redis)
	require.NotEmpty(t, part.Environment.Temporal)
	require.Positive(t, part.Environment.Cores)
	require.NotEmpty(t, part.Figures)
	for _, f := range part.Figures {
		require.Positive(t, f.Value, f.Name)
		require.Positive(t, f.Ratio, f.Name)
	}
}
