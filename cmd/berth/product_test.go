package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What only measures berth, or stands in for a model provider, is in programs of its own.
func TestProduct_Packages_HaveNoBenchmarksOrModelSimulator(t *testing.T) { // X9
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "berth/internal/app")
	require.NotContains(t, packages, "berth/internal/bench")
	require.NotContains(t, packages, "berth/internal/sim")
}
