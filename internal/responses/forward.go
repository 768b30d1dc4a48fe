package responses

import (
	"bytes"
	"encoding/json"
	"slices"

	"berth/internal/llm"
	"berth/internal/openai"
	"berth/internal/rawjson"
)

// Forwarded returns the request as upstreams get it: those that speak responses, and those that speak only chats. earlier are the items of the responses
// before this one, inputs and outputs, oldest first. Its error is an *openai.Error that names what no upstream can get.
func (r *Request) Forwarded(earlier []json.RawMessage) (*openai.Request, error) {
	whole, encrypted, err := r.whole(earlier)
	if err != nil {
		return nil, err
	}
	chat, noChat := r.chat(earlier)
	return openai.ParseResponse(whole, chat, noChat, encrypted)
}

// whole returns the body for an upstream that speaks responses, with the items of the responses before this one in the input, and the encrypted content
// that it has. berth keeps the response: the upstream does not. Its error is an *openai.Error.
func (r *Request) whole(earlier []json.RawMessage) (body []byte, encrypted []openai.Encrypted, err error) {
	var items [][]byte
	for i, item := range slices.Concat(earlier, r.items) {
		at := place(i, len(earlier))
		if typeOf(item) == itemReference {
			found := r.pool[value(item, "id")]
			if found == nil {
				return nil, nil, unknownReference(at, item)
			}
			item = found
		}
		text := value(item, fieldEncrypted)
		if text == "" {
			if typeOf(item) != itemReasoning { // of an upstream that cannot read it again
				items = append(items, sent(item, nil))
			}
			continue
		}
		e, ok := llm.ReadEncrypted(text)
		at += "." + fieldEncrypted
		if !ok {
			return nil, nil, unsupported(at, "was not made by this server, which therefore does not know who can read it: omit the item")
		}
		items, encrypted = append(items, sent(item, &e)), append(encrypted, openai.Encrypted{Param: at, Account: e.Account})
	}
	var o builder
	for _, name := range r.order {
		switch name {
		case "previous_response_id", "store", "background", "input", "stream", "stream_options":
			continue
		}
		o.raw(string(quotedKey(name)), r.values[name])
	}
	o.raw("input", joined(items))
	o.raw("store", []byte("false"))
	o.raw("stream", []byte("true"))
	return o.end(), encrypted, nil
}

// fieldEncrypted is what only the upstream can read that made it.
const fieldEncrypted = "encrypted_content"

// sent returns an item as an upstream gets it: without the id that berth has given it, and with that of its own if it has encrypted content.
func sent(item []byte, own *llm.Encrypted) []byte {
	if own == nil && (prefixes[typeOf(item)] == "" || !bytes.Contains(item, []byte(`"id"`))) {
		return item
	}
	var o builder
	if own != nil && own.ID != "" {
		o.text("id", own.ID)
	}
	all := rawjson.Read(item)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		switch {
		case string(key) == "id":
			continue
		case string(key) == fieldEncrypted && own != nil:
			v = quoted(own.Content)
		}
		o.raw(string(key), v)
	}
	return o.end()
}
