package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What only measures berth is in a program of its own.
func TestProduct_Packages_HaveNoBenchmarks(t *testing.T) { // X9
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "berth/internal/app")
	require.NotContains(t, packages, "berth/internal/bench")
}
