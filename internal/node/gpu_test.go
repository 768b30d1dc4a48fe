package node

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// S2, FA12: the usage of GPUs is what their tool and the kernel report; where neither does, it is unknown and not 0.
func TestGPUs_EachReport_MeanOrUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tool  string // a shell script; empty where it is not installed
		files []string
		want  *float64
	}{
		"one GPU":                       {tool: `echo 37`, want: new(37.0)},
		"an idle GPU":                   {tool: `echo 0`, want: new(0.0)},
		"two GPUs":                      {tool: `echo 10; echo 91`, want: new(50.5)},
		"carriage returns, empty lines": {tool: `printf '10\r\n\n'`, want: new(10.0)},
		"one that does not measure":     {tool: `echo '[N/A]'; echo 20`, want: new(20.0)},
		"none that measures":            {tool: `echo '[Not Supported]'`},
		"no devices were found":         {tool: `echo 'No devices were found'; exit 6`},
		"fails after a value":           {tool: `echo 5; exit 15`},
		"out of range":                  {tool: `echo 101; echo -1; echo NaN; echo 1e9`},
		"prints nothing":                {tool: `true`},
		"not installed":                 {},
		"amdgpu":                        {files: []string{"42\n"}, want: new(42.0)},
		"two amdgpu":                    {files: []string{"0\n", "100\n"}, want: new(50.0)},
		"amdgpu that does not answer":   {files: []string{""}},
		"both":                          {tool: `echo 30`, files: []string{"10\n"}, want: new(20.0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			g := &gpus{tool: []string{filepath.Join(dir, "missing")}, files: []string{filepath.Join(dir, "card*")}}
			if c.tool != "" {
				g.tool = []string{"sh", "-c", c.tool}
			}
			for i, text := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "card"+strconv.Itoa(i)), []byte(text), 0o600))
			}
			require.Equal(t, c.want, g.measure(t.Context()))
		})
	}
}

// A tool that hangs, also in a process of its own that keeps its output open, is ended in time.
func TestGPUs_ToolHangs_UnknownInTime(t *testing.T) {
	t.Parallel()
	g := &gpus{tool: []string{"sh", "-c", "echo 50; sleep 60 & sleep 60"}}
	begun := time.Now()
	require.Nil(t, g.measure(t.Context()))
	require.Less(t, time.Since(begun), 30*time.Second)
}
