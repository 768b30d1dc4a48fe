package signalling

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Hosts are the addresses to which the proxy may connect. Units register their own addresses; without this list a node token
// could make the API connect anywhere.
type Hosts []string

// Validate returns an error for the first invalid entry.
func (h Hosts) Validate() error {
	for i, entry := range h {
		host, port, err := net.SplitHostPort(entry)
		if err != nil {
			host, port = entry, "0"
		}
		if _, err := netip.ParsePrefix(entry); err == nil {
			continue
		}
		name := strings.TrimPrefix(host, "*.")
		_, badPort := strconv.ParseUint(port, 10, 16)
		if name == "" || strings.ContainsAny(name, "*/@ ") || badPort != nil {
			return fmt.Errorf("invalid host, number %d of the list: must be a name, *.name, an address or a network such as 10.0.0.0/8, and may end with :port", i+1)
		}
	}
	return nil
}

// Allow reports whether the list has the host of a URL.
func (h Hosts) Allow(u *url.URL) bool {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "http": "80"}[u.Scheme]
		if port == "" {
			port = "443"
		}
	}
	addr, addrErr := netip.ParseAddr(host)
	for _, entry := range h {
		entry = strings.ToLower(entry)
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			if addrErr == nil && prefix.Contains(addr.Unmap()) {
				return true
			}
			continue
		}
		name, only, err := net.SplitHostPort(entry)
		if err != nil {
			name, only = strings.Trim(entry, "[]"), port
		}
		if only != port {
			continue
		}
		if suffix, wild := strings.CutPrefix(name, "*"); name == host || wild && strings.HasSuffix(host, suffix) && len(host) > len(suffix) {
			return true
		}
	}
	return false
}
