package app

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// full is a listener of a process without file descriptors.
type full struct{ net.Listener }

func (full) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// FI9: an operator reads why clients wait, without one line for each retry.
func TestAccept_NoFileDescriptors_LoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &accepting{Listener: full{}, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		_, err := a.Accept()
		require.ErrorIs(t, err, syscall.EMFILE)
	}
	require.Equal(t, 1, strings.Count(log.String(), "raise the limit of open files (ulimit -n)"), "%s", &log)
	require.Contains(t, log.String(), "level=WARN")
}
