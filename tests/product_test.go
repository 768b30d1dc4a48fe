package tests

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What only measures berth, or stands in for models, nodes and media servers, is in programs of its own.
func TestProduct_Programs_HaveOnlyTheirOwnParts(t *testing.T) { // X9
	t.Parallel()
	for part, program := range map[string]string{
		"berth/internal/app.":         "berth",
		"berth/internal/bench.":       "berth-bench",
		"berth/internal/sim.":         "berth-sim",
		"berth/internal/node.(*Sim).": "berth-sim",
		"berth/internal/unit.(*Sim).": "berth-sim",
	} {
		for _, name := range []string{"berth", "berth-bench", "berth-sim"} {
			code, err := os.ReadFile(filepath.Join("..", "bin", name))
			require.NoError(t, err, "run `make build`")
			if name == program || name == "berth" {
				require.Equal(t, name == program, bytes.Contains(code, []byte(part)), "%s: %s", name, part)
			}
		}
	}
}
