package devserver

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunning_DirectoryStates_AreDistinguished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Running(dir)
	require.ErrorIs(t, err, ErrNone)

	release, err := Claim(dir)
	require.NoError(t, err)
	_, err = Claim(dir)
	require.ErrorContains(t, err, "BERTH_DATA_DIR")
	_, err = Running(dir)
	require.ErrorIs(t, err, ErrNone, "a server that has not started all its parts")

	want := Ready{PID: os.Getpid(), Parts: []string{"api"}, HTTPAddr: "127.0.0.1:1", Database: "sqlite:x"}
	require.NoError(t, want.Write(dir))
	info, err := os.Stat(ReadyFile(dir))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	got, err := Running(dir)
	require.NoError(t, err)
	require.Equal(t, want, got)

	release()
	_, err = Running(dir)
	require.ErrorIs(t, err, ErrStopped, "a killed server leaves its ready.json")
	require.NoError(t, RemoveReady(dir))
	require.NoError(t, RemoveReady(dir))
	_, err = Running(dir)
	require.ErrorIs(t, err, ErrNone)
}
