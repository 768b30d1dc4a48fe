package node

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// commandEnv are the variables of the agent that commands get: what programs need on any system. Everything else, such as keys of
// clouds and model providers, stays with the agent unless its operator names it.
var commandEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR",
	"LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
}

// proxyEnv are the addresses of proxies, in either case. They may have a password, and then have to be named.
var proxyEnv = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"}

var envPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\*?|\*)$`)

// allowedEnv returns those of the agent's variables, as NAME=value, that commands get: the usual ones, and the named ones. A name may end
// with * for any further characters.
func allowedEnv(all, named []string) ([]string, error) {
	for _, name := range named {
		if !envPattern.MatchString(name) {
			return nil, fmt.Errorf("%q: must be the name of an environment variable, which may end with *", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		matches := func(pattern string) bool {
			prefix, open := strings.CutSuffix(pattern, "*")
			return name == pattern || open && strings.HasPrefix(name, prefix)
		}
		switch {
		case slices.ContainsFunc(named, matches), slices.ContainsFunc(commandEnv, matches):
			return false
		default:
			return !slices.Contains(proxyEnv, strings.ToUpper(name)) || hasUserinfo(value)
		}
	}), nil
}

// hasUserinfo reports whether the address of a proxy may have credentials.
func hasUserinfo(address string) bool {
	if !strings.Contains(address, "@") {
		return false
	}
	u, err := url.Parse(address)
	return err != nil || u.User != nil || u.Host == ""
}
