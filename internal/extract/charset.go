package extract

import (
	"regexp"
	"strings"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode/utf32"
)

// codePage is the name of an encoding that is the number of a table of IBM or Microsoft.
var codePage = regexp.MustCompile(`^(?:cp|ibm|oem|dos|ms|windows|x)?[-_]?(\d{3,5})$`)

// encodingOf returns the encoding of a label, and its name if browsers know it; nil for an unknown label.
func encodingOf(label string) (enc encoding.Encoding, name string) {
	if enc, name = charset.Lookup(label); enc != nil {
		return enc, name
	}
	label = strings.ToLower(label)
	switch label {
	case "utf-32", "utf-32be", "utf32":
		return utf32.UTF32(utf32.BigEndian, utf32.UseBOM), ""
	case "utf-32le":
		return utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), ""
	}
	names := []string{label, strings.TrimPrefix(label, "x-")}
	if number := codePage.FindStringSubmatch(names[1]); number != nil {
		names = append(names, "ibm"+number[1], "windows-"+number[1])
	}
	for _, name := range names {
		if enc, err := ianaindex.IANA.Encoding(name); err == nil && enc != nil {
			return enc, ""
		}
		if enc, known := charset.Lookup(name); enc != nil {
			return enc, known
		}
	}
	return nil, ""
}

// isUTF7 reports whether a label is that of UTF-7, which is obsolete and never decoded.
func isUTF7(label string) bool {
	return strings.HasSuffix(strings.ReplaceAll(strings.ToLower(strings.TrimSpace(label)), "-", ""), "utf7")
}
