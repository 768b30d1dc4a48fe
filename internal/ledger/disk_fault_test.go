//go:build faults

package ledger

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testdb"
)

// A file system of its own has the data of the server, and is filled.
func TestPing_DiskFull_UnavailableUntilThereIsSpace(t *testing.T) { // FI9
	s := testdb.StartOnSmallDisk(t, "160m")
	l := open(t, s.Database(t))
	file := filepath.Join(s.Data(), "filler")
	require.NoError(t, exec.CommandContext(t.Context(), "/bin/sh", "-c", "cat /dev/zero > "+file+" || true").Run())
	p := awaitProblem(t, l, "disk_full")
	require.Contains(t, p.Error(), "No space left on device")
	require.NoError(t, os.Remove(file))
	writes(t, l)
}
