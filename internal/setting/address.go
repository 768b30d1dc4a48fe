package setting

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// bracketed returns host:port for an IPv6 address with a port but no brackets; an example for other texts.
func bracketed(addr string) string {
	i := strings.LastIndex(addr, ":")
	if _, err := netip.ParseAddr(addr[:i]); err == nil && isPort(addr[i+1:]) {
		return net.JoinHostPort(addr[:i], addr[i+1:])
	}
	return "[::1]:port"
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == text
}

// Collide reports whether one process cannot listen on both addresses, which are host:port.
func Collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || isAny(hostA) || isAny(hostB)
}

// isAny reports whether a host is the wildcard address.
func isAny(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// HostPort returns an error unless an address is host:port. Port 0, any free port, is one to listen on. Errors contain no part of the
// address but an IPv6 address: it may be an address of another kind, with a password.
func HostPort(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	var wrong *net.AddrError
	switch {
	case strings.Contains(addr, "://"):
		return errors.New("must be host:port without a scheme such as http://")
	case strings.ContainsAny(addr, "/@?#"):
		return errors.New("must be host:port without user, path and parameters")
	case errors.As(err, &wrong) && strings.Count(addr, ":") > 1 && !strings.Contains(addr, "["):
		return errors.New("an IPv6 address must be in brackets: " + bracketed(addr))
	case err != nil && !strings.Contains(addr, ":"):
		return errors.New("must be host:port; the port is missing")
	case err != nil:
		return errors.New("must be host:port, with an IPv6 address in brackets: [::1]:port")
	case strings.ContainsAny(host, " ,"):
		return errors.New("must be host:port; the host has a space or a comma")
	}
	if !isPort(port) {
		return fmt.Errorf("must be host:port with a port from 0 to %d", 1<<16-1)
	}
	return nil
}
