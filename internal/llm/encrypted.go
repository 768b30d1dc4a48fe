package llm

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"berth/internal/rawjson"
)

// Content that a provider has encrypted, such as its reasoning, can be read only with the account that got it, and only beside the id of its item.
// Clients keep it, and send it back. What they get of it therefore begins with both: the next call is made with that account, and has that id.
const (
	encryptedField  = "encrypted_content"
	encryptedPrefix = "berth."
	accountBytes    = 9
)

// account returns a name of an account of a provider. It does not show the setting of its key.
func account(provider, keySetting string) string {
	sum := sha256.Sum256([]byte(provider + "\n" + keySetting))
	return base64.RawURLEncoding.EncodeToString(sum[:accountBytes])
}

// Encrypted is content that was passed on.
type Encrypted struct {
	// Account is that of the upstream which made it, and ID the provider's id of its item, which may be empty.
	Account, ID string
	Content     string
}

// ReadEncrypted reads encrypted content as clients have it; false if it was not passed on by berth.
func ReadEncrypted(text string) (e Encrypted, ok bool) {
	rest, ok := strings.CutPrefix(text, encryptedPrefix)
	parts := strings.SplitN(rest, ".", 3)
	if !ok || len(parts) != 3 {
		return e, false
	}
	id, err := base64.RawURLEncoding.DecodeString(parts[1])
	return Encrypted{Account: parts[0], ID: string(id), Content: parts[2]}, err == nil
}

// shownEncrypted returns encrypted content, as it is written in JSON, as clients get it.
func (ep endpoint) shownEncrypted(id string, content []byte) []byte {
	head := `"` + encryptedPrefix + ep.account + "." + base64.RawURLEncoding.EncodeToString([]byte(id)) + "."
	return append([]byte(head), content[1:]...)
}

// shownItem returns an item of a response as clients get it.
func (ep endpoint) shownItem(item []byte) []byte {
	if content := rawField(item, encryptedField); !rawjson.IsString(content) || len(content) == len(`""`) {
		return item
	}
	id, _ := rawjson.String(rawField(item, "id"))
	var out []byte
	all := rawjson.Read(item)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		if string(key) == encryptedField {
			value = ep.shownEncrypted(id, value)
		}
		out = appendField(out, key, value)
	}
	return append(out, '}')
}

// shownItems returns a list of items as clients get it.
func (ep endpoint) shownItems(list []byte) []byte {
	if !rawjson.IsList(list) {
		return []byte("[]")
	}
	if !bytes.Contains(list, []byte(encryptedField)) {
		return list
	}
	out := []byte{'['}
	all := rawjson.Read(list)
	for item, ok := all.Item(); ok; item, ok = all.Item() {
		if len(out) > len("[") {
			out = append(out, ',')
		}
		out = append(out, ep.shownItem(item)...)
	}
	return append(out, ']')
}
