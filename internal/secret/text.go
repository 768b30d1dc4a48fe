package secret

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Hidden is what is printed of a secret.
const Hidden = "(hidden)"

// Text is a secret in a setting. However it is printed, logged or encoded, it is Hidden; only a conversion to string shows it.
type Text string

// Format is part of fmt.Formatter.
func (Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Hidden)) }

// String is part of fmt.Stringer.
func (Text) String() string { return Hidden }

// LogValue is part of slog.LogValuer.
func (Text) LogValue() slog.Value { return slog.StringValue(Hidden) }

// MarshalText is part of encoding.TextMarshaler.
func (Text) MarshalText() ([]byte, error) { return []byte(Hidden), nil }

// Strings returns the texts of a list of secrets.
func Strings(all []Text) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = string(s)
	}
	return out
}

// Address is the address of a server in a setting, which may contain credentials. However it is printed, logged or encoded, it is
// Masked; only a conversion to string shows all of it.
type Address string

// Format is part of fmt.Formatter.
func (a Address) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Masked(string(a)))) }

// String is part of fmt.Stringer.
func (a Address) String() string { return Masked(string(a)) }

// LogValue is part of slog.LogValuer.
func (a Address) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalText is part of encoding.TextMarshaler.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

const (
	host  = `[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]`
	hosts = `(?:` + host + `)?(?::[0-9]{1,5})?(?:,(?:` + host + `)(?::[0-9]{1,5})?)*`
)

// The forms of an address of which a part is shown. They are stricter than URLs: what has another form may be a password with
// characters that had to be encoded, of which a lenient parser would show the rest.
var (
	urlForm   = regexp.MustCompile(`^([a-z][a-z0-9+.-]{0,20})://(?:([^/?#@\s]*)@)?(` + hosts + `)?(/[A-Za-z0-9._~%/+-]*)?(?:\?([^?#@\s]*))?$`)
	hostForm  = regexp.MustCompile(`^(?:` + host + `)?:[0-9]{1,5}$`)
	valueForm = regexp.MustCompile(`^[A-Za-z0-9._~/,:+-]*$`)
	fileForm  = regexp.MustCompile(`^sqlite:[^?@=\x00-\x1f]*$`)
	escapes   = regexp.MustCompile(`%(?:[^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)`) // such as the % of a password that was not encoded
)

// harmless are the parameters of addresses whose values are shown: of PostgreSQL, libpq and pgx, Redis and go-redis.
var harmless = []string{
	"application_name", "connect_timeout", "client_encoding", "dbname", "default_query_exec_mode", "description_cache_capacity", "fallback_application_name",
	"host", "keepalives", "keepalives_idle", "pool_max_conns", "pool_min_conns", "port", "search_path", "sslcert", "sslkey", "sslmode",
	"sslnegotiation", "sslrootcert", "sslsni", "statement_cache_capacity", "statement_timeout", "target_session_attrs", "timezone", "user",
	"db", "dial_timeout", "protocol", "read_timeout", "write_timeout", "pool_size", "pool_timeout", "skip_verify",
}

// Masked returns an address without what may be secret in it: the password, and every parameter that is not known to be harmless. What is
// not an address of a known form is Hidden.
func Masked(address string) string {
	switch {
	case address == "":
		return ""
	case fileForm.MatchString(address) && !strings.Contains(address, "://"):
		return address
	case strings.Contains(address, ","): // several servers
		if all := strings.Split(address, ","); !slices.ContainsFunc(all, func(a string) bool { return !hostForm.MatchString(strings.TrimSpace(a)) }) {
			return address
		}
	case hostForm.MatchString(address):
		return address
	}
	parts := urlForm.FindStringSubmatch(address)
	if parts == nil || escapes.MatchString(address) {
		return Hidden
	}
	scheme, user, host, path, query := parts[1], parts[2], parts[3], parts[4], parts[5]
	out := scheme + "://"
	if name, password, ok := strings.Cut(user, ":"); ok && name != "" && password != "" {
		out += name + ":" + Hidden + "@"
	} else if user != "" { // a password in the place of the user
		out += Hidden + "@"
	}
	out += host + path
	if query != "" {
		out += "?" + maskedQuery(query)
	}
	return out
}

func maskedQuery(query string) string {
	all := strings.Split(query, "&")
	for i, one := range all {
		name, value, ok := strings.Cut(one, "=")
		switch {
		case !ok:
			all[i] = Hidden
		case !slices.Contains(harmless, strings.ToLower(name)) || !valueForm.MatchString(value):
			all[i] = name + "=" + Hidden
		}
	}
	return strings.Join(all, "&")
}

// Format is part of fmt.Formatter: a Secret is printed as the name of its setting.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// String is part of fmt.Stringer.
func (s Secret) String() string { return s.Setting() + " " + Hidden }

// LogValue is part of slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// WithoutURL removes the URL from an error of net/http or net/url: it may have a user, a key in its query, or the texts of a caller.
func WithoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
