package openai

import (
	"berth/internal/llm"
	"berth/internal/rawjson"
)

// estimate counts the tokens of a request. It is what a call reserves, so that it is rather too high: the provider's count replaces it.
type estimate struct {
	counted bool // the request has an input
	tokens  float64
	least   int64 // below which a provider cannot have read everything
}

// Tokens of what is not text, after the documentation of OpenAI.
const (
	tokensPerMessage = 4
	tokensPerImage   = 1000
	bytesPerAudio    = 1600 // bytes in base64 for each token: 10 tokens a second of compressed audio
	bytesPerFile     = 40   // likewise, of a document whose pages are read as text and images
)

// add counts a value that a provider reads as it is written, such as the schema of a tool.
func (e *estimate) add(value []byte) { e.tokens += llm.Tokens(string(value)) }

// text counts a text.
func (e *estimate) text(value []byte) {
	if s, ok := rawjson.String(value); ok {
		e.tokens += llm.Tokens(s)
		e.least += llm.LeastTokens(s)
	}
}

// readMessages checks and counts the messages of a chat. What their parts may have is checked by the provider.
func readMessages(r *Request, value []byte) *Error {
	if !rawjson.IsList(value) {
		return WrongType("a list", value)
	}
	all := rawjson.Read(value)
	for i := 0; ; i++ {
		message, ok := all.Item()
		if !ok {
			break
		}
		r.size.counted = true
		if !rawjson.IsObject(message) {
			err := WrongType("an object", message)
			err.Param = at(i)
			return err
		}
		if err := r.size.message(message); err != nil {
			err.Param = at(i) + err.Param
			return err
		}
	}
	if !r.size.counted {
		return Invalid("", "empty_array", "must have at least one message")
	}
	return nil
}

func (e *estimate) message(message []byte) *Error {
	e.tokens += tokensPerMessage
	hasRole := false
	all := rawjson.Read(message)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		switch rawjson.Key(key) {
		case "role":
			if hasRole = rawjson.IsString(value); !hasRole {
				err := WrongType("a text", value)
				err.Param = ".role"
				return err
			}
		case "content":
			e.content(value)
		case "name", "refusal", "reasoning_content", "reasoning":
			e.text(value)
		default:
			if rawjson.IsObject(value) || rawjson.IsList(value) { // calls of tools
				e.add(value)
			}
		}
	}
	if !hasRole {
		return Invalid(".role", "missing_required_parameter", "a message must have a role")
	}
	return nil
}

// readItems counts the items of a response.
func readItems(r *Request, value []byte) *Error {
	all := rawjson.Read(value)
	for item, ok := all.Item(); ok; item, ok = all.Item() {
		r.size.item(item)
	}
	return nil
}

func (e *estimate) item(item []byte) {
	e.tokens += tokensPerMessage
	all := rawjson.Read(item)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		switch rawjson.Key(key) {
		case "content", "output":
			e.content(value)
		case "arguments", "input", "name":
			e.text(value)
		case "encrypted_content":
			e.add(value)
		}
	}
}

func readInstructions(r *Request, value []byte) *Error {
	r.size.text(value)
	return nil
}

// content counts a text, or the parts of a message.
func (e *estimate) content(value []byte) {
	e.text(value)
	parts := rawjson.Read(value)
	if !rawjson.IsList(value) {
		return
	}
	for part, ok := parts.Item(); ok; part, ok = parts.Item() {
		if rawjson.IsString(part) {
			e.text(part)
			continue
		}
		fields := rawjson.Read(part)
		if !rawjson.IsObject(part) {
			continue
		}
		for key, field, ok := fields.Field(); ok; key, field, ok = fields.Field() {
			switch rawjson.Key(key) {
			case "type":
			case "image_url":
				e.tokens += tokensPerImage
			case "input_audio":
				e.tokens += float64(len(field)) / bytesPerAudio
			case "file", "file_data", "file_id", "file_url": // the latter of a response
				e.tokens += tokensPerImage + float64(len(field))/bytesPerFile
			case "text", "refusal":
				e.text(field)
			default:
				if rawjson.IsObject(field) || rawjson.IsList(field) {
					e.add(field)
				}
			}
		}
	}
}

// readInput checks and counts the input of a request for vectors: a text, a list of texts, a list of tokens, or a list of lists of tokens.
func readInput(r *Request, value []byte) *Error {
	e := &r.size
	if rawjson.IsString(value) {
		e.counted = true
		e.text(value)
		return nil
	}
	if !rawjson.IsList(value) {
		return WrongType("a text or a list", value)
	}
	all, inputs := rawjson.Read(value), 0
	for item, ok := all.Item(); ok; item, ok = all.Item() {
		e.counted = true
		switch {
		case rawjson.IsString(item):
			e.text(item)
			inputs++
		case rawjson.IsList(item):
			tokens := rawjson.Read(item)
			for _, ok := tokens.Item(); ok; _, ok = tokens.Item() {
				e.tokens++
			}
			inputs++
		default:
			e.tokens++
		}
	}
	switch {
	case !e.counted:
		return Invalid("", "empty_array", "must have at least one text")
	case inputs > maxInputs:
		return Invalid("", "array_above_max_length", "must have at most %d texts", maxInputs)
	}
	return nil
}
