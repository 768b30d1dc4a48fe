package extract

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	xunicode "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

var utf8BOM = []byte("\xef\xbb\xbf")

// marked encodings begin with a byte order mark. That of UTF-32 begins with that of UTF-16.
var boms = []struct {
	mark string
	enc  encoding.Encoding
}{
	{"\xff\xfe\x00\x00", utf32.UTF32(utf32.LittleEndian, utf32.UseBOM)},
	{"\x00\x00\xfe\xff", utf32.UTF32(utf32.BigEndian, utf32.UseBOM)},
	{"\xff\xfe", xunicode.UTF16(xunicode.LittleEndian, xunicode.UseBOM)},
	{"\xfe\xff", xunicode.UTF16(xunicode.BigEndian, xunicode.UseBOM)},
}

// decode returns a text in UTF-8. Encodings other than Unicode are recognised if the text is plausible in one of them only.
func decode(content []byte) (string, error) {
	for _, bom := range boms {
		if bytes.HasPrefix(content, []byte(bom.mark)) {
			if out, ok := strictly(bom.enc, content); ok {
				return noNUL(out)
			}
			return "", fmt.Errorf("%w: its byte order mark is that of UTF-16 or UTF-32", ErrDamaged)
		}
	}
	content = bytes.TrimPrefix(content, utf8BOM)
	if bytes.IndexByte(content, 0) >= 0 {
		if out, ok := unmarkedUTF16(content); ok {
			return out, nil
		}
		if isText(content) && bytes.Count(content, []byte{0})*2 < len(content) {
			return "", ErrNUL
		}
		return "", ErrUnknown
	}
	if utf8.Valid(content) {
		return escaped(content), nil
	}
	if at, nearly := nearlyUTF8(content); nearly {
		return "", Reason(fmt.Sprintf("the text is UTF-8, but byte %d is not: save it again as UTF-8", at+1))
	}
	if out, ok := declared(content); ok {
		return out, nil
	}
	return legacy(content)
}

// strictly decodes a text, or reports that something in it cannot be decoded.
func strictly(enc encoding.Encoding, content []byte) (string, bool) {
	out, err := enc.NewDecoder().Bytes(content)
	if err != nil || bytes.ContainsFunc(out, undefined) {
		return "", false
	}
	return string(out), true
}

// undefined reports whether a decoded character is a replacement or has no meaning outside of one program.
func undefined(r rune) bool { return r == utf8.RuneError || unicode.Is(unicode.Co, r) }

func noNUL(text string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", ErrNUL
	}
	return text, nil
}

// isText reports whether a file without its NUL characters is a text in a known encoding.
func isText(content []byte) bool {
	rest := bytes.ReplaceAll(content, []byte{0}, nil)
	if mostlyText(rest) {
		return true
	}
	out, err := legacy(rest)
	return err == nil && mostlyText([]byte(out))
}

// mostlyText reports whether nearly all characters of a file are those of texts in UTF-8.
func mostlyText(content []byte) bool {
	odd := 0
	for _, r := range string(content) {
		if r == utf8.RuneError || unicode.IsControl(r) && !strings.ContainsRune(blank, r) {
			odd++
		}
	}
	return odd*20 < len(content)
}

// escaped decodes the Japanese encoding of mail, which is in ASCII with escape sequences. Other texts remain as they are.
func escaped(content []byte) string {
	if bytes.Contains(content, []byte("\x1b$B")) || bytes.Contains(content, []byte("\x1b$@")) {
		if out, ok := strictly(japanese.ISO2022JP, content); ok {
			return out
		}
	}
	return string(content)
}

// unmarkedUTF16 decodes a text that is UTF-16 without a mark. Its ASCII characters, such as spaces, have a NUL in the place of the
// higher byte. They are most of its characters, or the file is in no other encoding.
func unmarkedUTF16(content []byte) (string, bool) {
	if len(content)%2 != 0 || len(content) < 4 {
		return "", false
	}
	var nul [2]int
	for i, b := range content {
		if b == 0 {
			nul[i%2]++
		}
	}
	order := xunicode.BigEndian
	if nul[1] > nul[0] {
		order = xunicode.LittleEndian
	}
	out, ok := strictly(xunicode.UTF16(order, xunicode.IgnoreBOM), content)
	if !ok || paired(out) || strings.ContainsFunc(out, func(r rune) bool {
		return !unicode.IsPrint(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r)
	}) {
		return "", false
	}
	return out, 4*max(nul[0], nul[1]) > len(content) || !isText(content)
}

// paired reports whether a part of a text is ASCII of which two characters were read as one: several Chinese characters that are rare.
func paired(text string) bool {
	const several = 5
	run := 0
	for _, r := range text {
		switch {
		case !shownASCII(r>>8) || !shownASCII(r&0xff):
			run = 0
		case unicode.Is(unicode.Han, r) && !frequentSimplified[r] && !frequentTraditional[r] && !frequentJapanese[r]:
			if run++; run == several {
				return true
			}
		}
	}
	return false
}

func shownASCII(r rune) bool { return r >= ' ' && r <= '~' || r == '\t' || r == '\r' || r == '\n' }

// nearlyUTF8 reports whether a text is UTF-8 except for few bytes, and where the first of those is.
func nearlyUTF8(content []byte) (at int, nearly bool) {
	valid, invalid := 0, 0
	for i := 0; i < len(content); {
		r, size := utf8.DecodeRune(content[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			if invalid == 0 {
				at = i
			}
			invalid++
		case size > 1:
			valid++
		}
		i += size
	}
	return at, valid > 2*invalid
}

var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]*\bencoding\s*=\s*["']([\w.:-]+)["']`)

// declared decodes a document that states its encoding, in an XML declaration or an HTML meta element.
func declared(content []byte) (string, bool) {
	var enc encoding.Encoding
	head := content[:min(len(content), maxHead)]
	if found := xmlEncoding.FindSubmatch(head); found != nil {
		enc, _ = charset.Lookup(string(found[1]))
	} else if bytes.Contains(bytes.ToLower(head), []byte("<meta")) {
		if e, name, _ := charset.DetermineEncoding(content, ""); name != "windows-1252" || bytes.Contains(bytes.ToLower(head), []byte("1252")) ||
			bytes.Contains(bytes.ToLower(head), []byte("8859-1")) { // the default of browsers is a guess
			enc = e
		}
	}
	if enc == nil {
		return "", false
	}
	return strictly(enc, content)
}
