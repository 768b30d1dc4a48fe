package extract

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// eastAsians are the encodings with one or two bytes for a character, and the frequent characters of their languages.
var eastAsians = []struct {
	name     string
	enc      encoding.Encoding
	frequent map[rune]bool
}{
	{"GB18030", simplifiedchinese.GB18030, frequentSimplified},
	{"Big5", traditionalchinese.Big5, frequentTraditional},
	{"Shift-JIS", japanese.ShiftJIS, frequentJapanese},
	{"EUC-JP", japanese.EUCJP, frequentJapanese},
	{"EUC-KR", korean.EUCKR, frequentKorean},
}

const (
	// fewest is the number of characters below which an encoding is a guess.
	fewest = 4
	// apart is the share of frequent characters that another encoding may have, as a part of that of the best.
	apart = 0.4
)

// legacy decodes a text in an encoding that was used before Unicode if that is certain, or refuses it with the names of the candidates.
func legacy(content []byte) (string, error) {
	var best, second float64
	var found string
	var names []string
	certain := false
	for _, e := range eastAsians {
		out, ok := strictly(e.enc, content)
		if !ok || enclosed(out) {
			continue
		}
		share, n := frequency(out, e.frequent)
		if share >= apart {
			names = append(names, e.name)
		}
		if share > best {
			best, second, found, certain = share, best, out, n >= fewest && share >= required(n)
		} else {
			second = max(second, share)
		}
	}
	certain = certain && second <= apart*best
	out, western, latin := western(content)
	switch {
	case western && !certain:
		return out, nil
	case certain && !western:
		return found, nil
	}
	names = append(names, latin...)
	if len(names) > 0 {
		return "", fmt.Errorf("%w", Reason(strings.Replace(string(ErrEncoding), "not known", "not certain, perhaps "+strings.Join(names, " or "), 1)))
	}
	return "", ErrEncoding
}

// required is the share of frequent characters that a text of n characters has at least.
func required(n int) float64 {
	switch {
	case n < 8:
		return 0.8
	case n < 16:
		return 0.65
	}
	return 0.5
}

// frequency returns the share of frequent characters in those that are not ASCII, and their number.
func frequency(text string, frequent map[rune]bool) (float64, int) {
	n, known := 0, 0
	for _, r := range text {
		if r < 0x80 || r == '\ufeff' {
			continue
		}
		n++
		if frequent[r] {
			known++
		}
	}
	return float64(known) / float64(max(n, 1)), n
}

// enclosed reports whether a character stands between two Latin letters, as in "G杯eborg": it is a letter and a half of another encoding.
func enclosed(text string) bool {
	r := []rune(text)
	for i := 1; i+1 < len(r); i++ {
		if r[i] >= 0x80 && isLetter(r[i-1]) && isLetter(r[i+1]) {
			return true
		}
	}
	return false
}

func isLetter(r rune) bool { return r < 0x80 && unicode.IsLetter(r) }
