package setting

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdvice_EachError_NamesWhatToChange(t *testing.T) {
	t.Parallel()
	for number, want := range map[syscall.Errno]string{
		syscall.EMFILE: "ulimit -n", syscall.ENFILE: "ulimit -n", syscall.EADDRINUSE: "stop what uses", syscall.EACCES: "port from 1024",
		syscall.EADDRNOTAVAIL: "an address of this host",
	} {
		require.Contains(t, advice(&net.OpError{Op: "listen", Err: os.NewSyscallError("socket", number)}), want)
	}
}
