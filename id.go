package berth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"regexp"
	"strings"
	"time"
)

// IDPattern is the grammar of every id that a client may choose: tasks, services, users, nodes, sessions, turns, requests
// and executions. It keeps an id whole in keys, paths and headers, and apart from the suffix ~n of an update id.
const IDPattern = `^[A-Za-z0-9_.@-]{1,128}$`

var validID = regexp.MustCompile(IDPattern)

// ValidID returns a CodeInvalid error that names field when v cannot be an id.
func ValidID(field, v string) error {
	if !validID.MatchString(v) || v == "." || v == ".." { // clients resolve these two away in a path
		return Invalid(field, "must be 1 to 128 letters, digits and characters of _.@-")
	}
	return nil
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

func encodeID(prefix string, b []byte) string {
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(b))
}
