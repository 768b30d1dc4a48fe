package extract

import (
	"bytes"
	"regexp"
)

// uuBegins is the line before uuencoded data (POSIX, uuencode).
var uuBegins = regexp.MustCompile(`(?m)^begin [0-7]{3,4} .+\n`)

// unuuencoded decodes the data between begin and end, and leaves the text around it. Programs cut the spaces at the end of lines. left is
// 1 if the end is missing.
func unuuencoded(body []byte) (out []byte, left int) {
	begin := uuBegins.FindIndex(body)
	if begin == nil {
		return body, 0
	}
	out = append(out, body[:begin[0]]...)
	for rest := body[begin[1]:]; len(rest) > 0; {
		end := lineEnd(rest)
		line := bytes.TrimRight(rest[:end], "\n")
		rest = rest[end:]
		if string(bytes.TrimSpace(line)) == "end" {
			if len(bytes.TrimSpace(rest)) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
				out = append(out, '\n')
			}
			return append(out, rest...), 0
		}
		out = appendUU(out, line)
	}
	return out, 1
}

// appendUU appends the data of a line, which begins with their number.
func appendUU(out, line []byte) []byte {
	bits := func(i int) byte {
		if i < len(line) {
			return (line[i] - ' ') & 0x3f
		}
		return 0
	}
	n := int(bits(0))
	for i := 1; n > 0; i, n = i+4, n-3 {
		a, b, c, d := bits(i), bits(i+1), bits(i+2), bits(i+3)
		group := []byte{a<<2 | b>>4, b<<4 | c>>2, c<<6 | d}
		out = append(out, group[:min(n, len(group))]...)
	}
	return out
}
