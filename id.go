package berth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// IDPattern is the grammar of every id that a client may choose: tasks, services, tenants, nodes, sessions, turns, requests
// and executions. It keeps an id whole in keys, paths and headers, and apart from the suffix ~n of an update id. Users have
// the ids that their identity provider issues, see ValidUserID.
const IDPattern = `^[A-Za-z0-9_.@-]{1,128}$`

var validID = regexp.MustCompile(IDPattern)

// ValidID returns a CodeInvalid error that names field when v cannot be an id.
func ValidID(field, v string) error {
	if err := notDots(field, v); err != nil {
		return err
	}
	if !validID.MatchString(v) {
		return Invalid(field, "must be 1 to 128 letters, digits and characters of _.@-")
	}
	return nil
}

// notDots returns a CodeInvalid error for the names that clients resolve away in a path.
func notDots(field, v string) error {
	if v == "." || v == ".." {
		return Invalid(field, "must not be the dots . or .. alone, which have a meaning in addresses")
	}
	return nil
}

// MaxUserID is the maximum length of a user id in bytes, the same as of a subject in OpenID Connect Core 1.0, section 2.
const MaxUserID = 255

// ValidUserID returns a CodeInvalid error that names field when v cannot be the id of a user. Identity providers issue ids
// such as auth0|507f1f77 or https://login.example/u/42: any printable text is accepted.
func ValidUserID(field, v string) error {
	if err := notDots(field, v); err != nil {
		return err
	}
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if v == "" || len(v) > MaxUserID || !utf8.ValidString(v) || strings.ContainsFunc(v, unprintable) {
		return Invalid(field, "must be 1 to %d bytes of printable text", MaxUserID)
	}
	return nil
}

// EscapeID returns id in the characters of IDPattern and %, for a Redis key, a channel, a lease or a workflow id, whose parts
// are separated by other characters. Ids that match IDPattern are unchanged, and no two ids have the same result: every other
// byte becomes % with two hexadecimal digits.
func EscapeID(id string) string {
	if validID.MatchString(id) {
		return id
	}
	var b strings.Builder
	for _, c := range []byte(id) {
		if plainIDByte(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&0xf]}) // without fmt, which is not for workflows
		}
	}
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

func plainIDByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_.@-", c) >= 0
}

// NewID returns a new unique id that begins with prefix, such as "e-". Ids that are made one after another share their
// first characters, which keeps indexes compact.
func NewID(prefix string) string {
	var b [20]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // never fails: see crypto/rand
	return encodeID(prefix, b[:])
}

// DerivedID returns the id with prefix that parts determine: equal parts, equal id.
func DerivedID(prefix string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return encodeID(prefix, sum[:20])
}

// idLength is the number of characters behind the prefix of an id.
const idLength = 32

func encodeID(prefix string, b []byte) string {
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(b))
}
