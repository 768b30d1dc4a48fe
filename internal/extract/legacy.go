package extract

import (
	"fmt"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// eastAsian is an encoding with one or two bytes for a character.
type eastAsian struct {
	name string
	enc  encoding.Encoding
	// single reports whether a byte above 0x7f is a character, and common whether two are one that is frequent in texts of the
	// language: punctuation, syllables, or the first level of the character set's ideographs, which are about 97% of a text.
	single func(b byte) bool
	common func(lead, trail byte) bool
}

func none(byte) bool { return false }

func in(b, from, to byte) bool { return from <= b && b <= to }

var eastAsians = []eastAsian{
	{"GB18030", simplifiedchinese.GB18030, none, func(l, t byte) bool {
		return t >= 0xa1 && (in(l, 0xa1, 0xa3) || in(l, 0xb0, 0xd7))
	}},
	{"Big5", traditionalchinese.Big5, none, func(l, t byte) bool {
		return in(l, 0xa1, 0xa3) || in(l, 0xa4, 0xc6) && (in(t, 0x40, 0x7e) || t >= 0xa1)
	}},
	{"Shift-JIS", japanese.ShiftJIS, func(b byte) bool { return in(b, 0xa1, 0xdf) }, func(l, _ byte) bool {
		return in(l, 0x81, 0x84) || in(l, 0x88, 0x98)
	}},
	{"EUC-JP", japanese.EUCJP, none, func(l, t byte) bool {
		return t >= 0xa1 && (in(l, 0xa1, 0xa5) || in(l, 0xb0, 0xcf))
	}},
	{"EUC-KR", korean.EUCKR, none, func(l, t byte) bool {
		return t >= 0xa1 && (in(l, 0xa1, 0xa3) || in(l, 0xb0, 0xc8))
	}},
}

const (
	// likely is the share of frequent characters in a text of an encoding, and apart how much less others have to have.
	likely, apart = 0.85, 0.1
	// fewPairs is too few to distinguish encodings of the same structure.
	fewPairs = 4
)

// legacy decodes a text in an encoding that was used before Unicode, or refuses it with the names of the candidates.
func legacy(content []byte) (string, error) {
	if out, ok := western(content); ok {
		return out, nil
	}
	var best, second float64
	var found string
	var names []string
	for _, e := range eastAsians {
		share := e.share(content)
		if share < likely-apart {
			continue
		}
		out, ok := strictly(e.enc, content)
		if !ok {
			continue
		}
		names = append(names, e.name)
		if share > best {
			best, second, found = share, best, out
		} else {
			second = max(second, share)
		}
	}
	if best >= likely && best-second >= apart {
		return found, nil
	}
	if len(names) > 0 {
		return "", fmt.Errorf("%w", Reason(strings.Replace(string(ErrEncoding), "not known", "not certain, perhaps "+strings.Join(names, " or "), 1)))
	}
	return "", ErrEncoding
}

// share returns the share of frequent characters in a text, 0 if the text is not in this encoding.
func (e eastAsian) share(content []byte) float64 {
	var n counts
	for i := 0; i < len(content); i++ {
		b := content[i]
		if b < 0x80 {
			continue
		}
		n.characters++
		if e.single(b) {
			continue
		}
		if i++; i == len(content) {
			return 0
		}
		n.add(b, content[i])
		if e.common(b, content[i]) {
			n.common++
		}
	}
	if n.characters == 0 || !e.plausible(n) {
		return 0
	}
	return float64(n.common) / float64(n.characters)
}

// counts are of the characters of a text that are not ASCII.
type counts struct {
	characters, common int
	kana               int // of EUC-JP: rows 0xa4 and 0xa5
	later              int // behind the syllables of EUC-KR: rows from 0xc9
	low                int // with a second byte below 0xa1
}

func (n *counts) add(lead, trail byte) {
	switch {
	case lead == 0xa4, lead == 0xa5:
		n.kana++
	case lead >= 0xc9:
		n.later++
	}
	if trail < 0xa1 {
		n.low++
	}
}

// plausible distinguishes encodings that share most of their codes. Of a Japanese text a part is kana. A Korean text consists of
// syllables; about half of the characters of a Chinese one are in the rows behind theirs. In Big5 four of ten second bytes are low.
func (e eastAsian) plausible(n counts) bool {
	few := n.characters <= fewPairs
	switch e.name {
	case "EUC-JP":
		return n.kana*5 >= n.characters
	case "EUC-KR":
		return n.kana == 0 && n.later*20 <= n.characters
	case "GB18030":
		return n.kana*5 < n.characters && (few || n.later*20 > n.characters)
	case "Big5":
		return few || n.low*10 > n.characters
	}
	return true
}

// westernLetters are the letters beside ASCII of languages that are written in Windows-1252. Texts of one language or two of them
// have no others; the languages of other code pages have, at the same bytes.
var westernLetters = []string{
	"äöüßÄÖÜéèëÉ", // German, with names
	"àâæçéèêëîïôœùûüÿÀÂÇÉÈÊËÎÏÔŒÙÛÜ", // French
	"áéíóúüñÁÉÍÓÚÜÑçÇ",               // Spanish, Catalan
	"àáâãçéêíóôõúüÀÁÂÃÇÉÊÍÓÔÕÚ",      // Portuguese
	"àèéìíîòóùúÀÈÉÌÒÙ",               // Italian
	"åäöæøéüÅÄÖÆØÉ",                  // the Nordic languages
	"áéëïíóöüèêÉË",                   // Dutch
}

const (
	// westernMarks are punctuation and symbols of Windows-1252 in texts, and westernJoins those between two letters.
	westernMarks = "€‚ƒ„…†‡‰‹‘’“”•–—™› ¡£§©«®°±²³´·»¿½¼¾"
	westernJoins = "’–— ·\u00ad"
)

// western decodes a text that is certainly in Windows-1252, which includes ISO 8859-1: few characters are not ASCII, and all of those
// are marks or letters of one language.
func western(content []byte) (string, bool) {
	var seen [256]bool
	letters, ascii := 0, 0
	for i, b := range content {
		r := charmap.Windows1252.DecodeByte(b)
		switch {
		case isLetter(b):
			ascii++
		case b < 0x80:
		case strings.ContainsRune(westernMarks+westernJoins, r):
			if i > 0 && i+1 < len(content) && isLetter(content[i-1]) && isLetter(content[i+1]) && !strings.ContainsRune(westernJoins, r) {
				return "", false // a letter of another code page
			}
		default:
			letters++
			seen[b] = true
		}
	}
	if letters > ascii { // two bytes for a letter
		return "", false
	}
	for _, known := range westernLetters {
		if knows(known, &seen) {
			return strictly(charmap.Windows1252, content)
		}
	}
	return "", false
}

// knows reports whether a language has all letters that a text has.
func knows(known string, seen *[256]bool) bool {
	for b, there := range seen {
		if there && !strings.ContainsRune(known, charmap.Windows1252.DecodeByte(byte(b))) {
			return false
		}
	}
	return true
}

func isLetter(b byte) bool { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }
