package setting

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// HostPort returns an error unless an address is host:port. Port 0, any free port, is one to listen on. Errors contain no part of the
// address, which may be an address of another kind, with a password.
func HostPort(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	var wrong *net.AddrError
	switch {
	case strings.Contains(addr, "://"):
		return errors.New("must be host:port without a scheme such as http://")
	case strings.ContainsAny(addr, "/@?#"):
		return errors.New("must be host:port without user, path and parameters")
	case errors.As(err, &wrong) && strings.Count(addr, ":") > 1 && !strings.Contains(addr, "["):
		return errors.New("an IPv6 address must be in brackets: [::1]:7233")
	case err != nil && !strings.Contains(addr, ":"):
		return errors.New("must be host:port; the port is missing")
	case err != nil:
		return errors.New("must be host:port, with an IPv6 address in brackets: [::1]:7233")
	case strings.ContainsAny(host, " ,"):
		return errors.New("must be host:port; the host has a space or a comma")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("must be host:port with a port from 0 to %d", 1<<16-1)
	}
	return nil
}
