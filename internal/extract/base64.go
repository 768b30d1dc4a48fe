package extract

import (
	"bytes"
	"encoding/base64"
)

// wrapped is a length of words that only encoded data have.
const wrapped = 60

// unbase64 decodes Base64 in one or several blocks, of which each may have its own padding, without what is foreign to it (RFC 2045, 6.8).
// What programs append in plain text, such as the footer of a mailing list, remains. left is the number of letters behind the last whole group of four, which programs that omit the padding leave, too.
func unbase64(body []byte) (out []byte, left int) {
	var block []byte
	end := 0 // of the data
	lastForeign := bytes.LastIndexFunc(body, foreignToBase64)
	apart := false // what follows may be text
	var next int
	for at := 0; at < len(body); at = next {
		next = at + lineEnd(body[at:])
		line := bytes.TrimSpace(body[at:next])
		if len(line) == 0 {
			apart = apart || end > 0 && lastForeign >= next
			continue
		}
		if !encoded(line) && (apart || bytes.ContainsFunc(line, foreignToBase64)) {
			break
		}
		for _, b := range line {
			switch {
			case base64Letter(rune(b)) >= 0:
				block = append(block, b)
			case b == '=':
				out, block = appendBlock(out, block), block[:0]
			}
		}
		end, apart = next, apart || line[len(line)-1] == '='
	}
	left = len(block) % 4
	out = appendBlock(out, block)
	if rest := body[end:]; end == 0 {
		return body, 0
	} else if len(bytes.TrimSpace(rest)) > 0 {
		return append(append(out, '\n'), rest...), 0
	}
	return out, left
}

// appendBlock appends the data of a block, which may lack its padding.
func appendBlock(out, block []byte) []byte {
	if len(block)%4 == 1 {
		block = block[:len(block)-1]
	}
	out, _ = base64.RawStdEncoding.AppendDecode(out, block) // all of its letters are valid
	return out
}

// encoded reports whether a line is Base64 rather than words: its letters change between capitals, small ones and digits, or it is padded.
func encoded(line []byte) bool {
	if bytes.Contains(line, []byte("://")) || bytes.ContainsRune(line, '@') {
		return false
	}
	letters := len(bytes.Map(base64Letter, line))
	padding := len(line) - len(bytes.TrimRight(line, "="))
	blanks := bytes.Count(line, []byte(" ")) + bytes.Count(line, []byte("\t"))
	others := len(line) - letters - blanks - bytes.Count(line, []byte("="))
	const few = 8
	if few*others > len(line) || letters == 0 {
		return false
	}
	if padding > 0 && (len(line)-blanks-others)%4 == 0 || others+blanks == 0 && len(line) >= wrapped {
		return true
	}
	mixed, all := 0, 0
	for _, word := range bytes.FieldsFunc(line, func(r rune) bool { return base64Letter(r) < 0 || r == '+' || r == '/' }) {
		const often = 4
		if all += len(word); often*changes(word) > len(word) {
			mixed += len(word)
		}
	}
	return 2*mixed > all
}

// changes counts where a word changes between capitals, small letters and digits, but not behind the capital at its beginning.
func changes(word []byte) (n int) {
	kind := func(b byte) int {
		switch {
		case b >= 'a':
			return 0
		case b >= 'A':
			return 1
		}
		return 2
	}
	for i := 1; i < len(word); i++ {
		if kind(word[i]) != kind(word[i-1]) && (i > 1 || kind(word[0]) != 1 || kind(word[1]) != 0) {
			n++
		}
	}
	return n
}

func base64Letter(r rune) rune {
	if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '+' || r == '/') {
		return r
	}
	return -1
}

func foreignToBase64(r rune) bool { return base64Letter(r) < 0 && r != '=' && r != '\n' && r != '\r' }
