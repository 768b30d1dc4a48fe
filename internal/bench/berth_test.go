package bench

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindBerth_WrongProgram_ErrorSaysWhich(t *testing.T) { // X9
	for name, c := range map[string]struct{ program, problem string }{
		"none":            {"", "neither in"},
		"another version": {"echo v0.9", `has version "v0.9", berth-bench "v1"`},
		"no version":      {"exit 1", "read the version of"},
		"no Go program":   {"echo v1", "read the modules of"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.program != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "berth"), []byte("#!/bin/sh\n"+c.program+"\n"), 0o700)) //nolint:gosec // a program
			}
			t.Setenv("PATH", dir)
			_, err := FindBerth(t.Context(), "v1")
			require.ErrorContains(t, err, c.problem)
		})
	}
}
