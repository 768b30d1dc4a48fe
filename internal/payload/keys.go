package payload

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"berth"
)

// keyBytes is the size of a key: AES-256.
const keyBytes = 32

// plain as the first entry of a list of keys means that nothing is encrypted.
const plain = "none"

// Keys are the keys of payloads by id. The zero value encrypts nothing and decrypts nothing.
type Keys struct {
	current string // encrypts; empty: payloads stay plain text
	byID    map[string][]byte
}

// ParseKeys reads a list of keys, "id:base64,id2:base64", separated by commas or lines. The first key encrypts, all of them decrypt. With "none" in the
// first place nothing is encrypted. Errors contain nothing of the list.
func ParseKeys(list string) (Keys, error) {
	if list == "" {
		return Keys{}, nil
	}
	k := Keys{byID: map[string][]byte{}}
	for i, entry := range strings.Split(strings.NewReplacer("\r\n", ",", "\n", ",").Replace(list), ",") {
		entry = strings.TrimSpace(entry)
		if i == 0 && entry == plain {
			continue
		}
		id, encoded, found := strings.Cut(entry, ":")
		switch {
		case !found:
			return Keys{}, fmt.Errorf("entry %d must have the form id:base64", i+1)
		case berth.ValidID("", id) != nil || id == plain:
			return Keys{}, fmt.Errorf("entry %d: invalid key id", i+1)
		case k.byID[id] != nil:
			return Keys{}, fmt.Errorf("entry %d: the id is listed twice", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return Keys{}, fmt.Errorf("entry %d is not valid base64", i+1)
		}
		if len(key) != keyBytes {
			return Keys{}, fmt.Errorf("entry %d: the key has %d bytes; must have %d (openssl rand -base64 %d)", i+1, len(key), keyBytes, keyBytes)
		}
		k.byID[id] = key
		if i == 0 {
			k.current = id
		}
	}
	if len(k.byID) == 0 {
		return Keys{}, errors.New("no key is listed")
	}
	return k, nil
}

// Encrypt reports whether payloads are encrypted.
func (k Keys) Encrypt() bool { return k.current != "" }
