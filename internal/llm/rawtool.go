package llm

import (
	"crypto/rand"
	"strconv"

	"berth/internal/rawjson"
)

// toolCalls are the tool calls of one choice. Clients join the parts of a call by its index. Not all servers send one, and some send 0 for
// each call: then its id distinguishes it.
type toolCalls struct {
	byID map[string]int // the index that clients read
	at   map[int]int    // likewise, by the index that the server sends: of the last call with it
	used map[int]bool
	last int // the index of the last part
	next int // above all that are used
}

// maxToolIndex is above the index of any tool call.
const maxToolIndex = 1 << 16

func newToolCalls() *toolCalls {
	return &toolCalls{byID: map[string]int{}, at: map[int]int{}, used: map[int]bool{}}
}

// take returns the parts of calls as clients read them, nil if they are as the server sent them. Only parts of a stream have an index.
func (t *toolCalls) take(list []byte, stream bool) ([]byte, error) {
	out, changed, before := []byte{'['}, false, -1
	all := rawjson.Read(list)
	for position := 0; ; position++ {
		call, ok := all.Item()
		if !ok {
			break
		}
		if !rawjson.IsObject(call) {
			return nil, malformed("a tool call that is not an object")
		}
		if position > 0 {
			out = append(out, ',')
		}
		given := -1
		if n, err := strconv.Atoi(string(rawField(call, "index"))); err == nil && n >= 0 && n < maxToolIndex {
			given = n
		}
		name, _ := rawjson.String(rawField(rawField(call, "function"), "name"))
		another := !stream || name != "" && (given < 0 || position > 0 && given == before)
		before = given
		if shown := t.one(call, given, another, stream); shown != nil {
			out, changed = append(out, shown...), true
		} else {
			out = append(out, call...)
		}
	}
	if !changed {
		return nil, nil
	}
	return append(out, ']'), nil
}

// one returns a part of a call as clients read it, nil if it is as the server sent it. another: without an id, it is another call than those
// before it.
func (t *toolCalls) one(call []byte, given int, another, stream bool) []byte {
	id, _ := rawjson.String(rawField(call, "id"))
	index, begins := t.place(given, id, another)
	kind := rawField(call, "type")
	addID, addType := begins && id == "", begins && rawjson.IsNull(kind)
	if (index == given || !stream) && !addID && !addType {
		return nil
	}
	var out []byte
	if stream {
		out = appendField(out, []byte("index"), strconv.AppendInt(nil, int64(index), 10))
	}
	if addID {
		out = appendField(out, []byte("id"), quotedText("call_"+rand.Text()))
	}
	if addType {
		out = appendField(out, []byte("type"), []byte(`"function"`))
	}
	all := rawjson.Read(call)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		if name := string(key); name == "index" && stream || name == "id" && addID || name == "type" && addType {
			continue
		}
		out = appendField(out, key, value)
	}
	return append(out, '}')
}

// place returns the index of the call of a part, and whether the part is its first.
func (t *toolCalls) place(given int, id string, another bool) (index int, begins bool) {
	index, known := t.byID[id]
	switch {
	case id != "":
	case another:
		known = false
	case given >= 0:
		index, known = t.at[given]
	default:
		index, known = t.last, t.next > 0
	}
	if !known {
		if index = given; given < 0 || t.used[given] {
			index = t.next
		}
		t.next = max(t.next, index+1)
	}
	if id != "" {
		t.byID[id] = index
	}
	if given >= 0 {
		t.at[given] = index
	}
	t.used[index], t.last = true, index
	return index, !known
}
