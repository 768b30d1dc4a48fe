package extract

import (
	"strings"
	"unicode"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
)

// singles are the other encodings with one byte for a character. Most bytes are letters in several of them.
var singles = []struct {
	name string
	enc  encoding.Encoding
}{
	{"Windows-1250", charmap.Windows1250},
	{"ISO 8859-2", charmap.ISO8859_2},
	{"ISO 8859-15", charmap.ISO8859_15},
	{"Windows-1254", charmap.Windows1254},
	{"Windows-1257", charmap.Windows1257},
	{"Windows-1258", charmap.Windows1258},
	{"Windows-1251", charmap.Windows1251},
	{"KOI8-R", charmap.KOI8R},
	{"ISO 8859-5", charmap.ISO8859_5},
	{"CP866", charmap.CodePage866},
	{"Windows-1253", charmap.Windows1253},
	{"Windows-1255", charmap.Windows1255},
	{"Windows-1256", charmap.Windows1256},
	{"Windows-874", charmap.Windows874},
	{"CP437", charmap.CodePage437},
	{"CP850", charmap.CodePage850},
	{"CP852", charmap.CodePage852},
	{"Macintosh", charmap.Macintosh},
}

// westerns are the languages that are written in Windows-1252: their letters beside ASCII, and frequent words that the languages of
// other tables lack. A word with such a letter proves the table; of others two are needed.
var westerns = []struct{ letters, words string }{
	{"áâäçéëíîóôöúüßÁÄÇÉÖÜ", "the of and to with is for we you experience it in our your are have"}, // letters of English names
	{"äöüßÄÖÜéëÉ", "und der die das mit für von bei den ein eine ist wir über größe straße führt"},
	{"àâæçéèêëîïôœùûüÿÀÂÇÉÈÊËÎÏÔŒÙÛÜ", "les des une dans pour avec est sur nous à où très être même dès après déjà première expérience système"},
	{"áéíóúüñÁÉÍÓÚÜÑçÇ", "el los las una para con que del por años año señor español española diseño"},
	{"àáâãçéêíóôõúüÀÁÂÃÇÉÊÍÓÔÕÚ", "uma para com que dos das não são formação experiência à informações programação gestão"},
	{"àèéìíîòóùúÀÈÉÌÒÙ", "di che della delle per una con del gli è più però già può sarà società attività"},
	{"åäöæøéüÅÄÖÆØÉ", "och att som det söker lön efter med til för på är når från også får år arbejde å"},
	{"áéëïíóöüèêÉË", "het een van voor niet met wij zijn één"},
}

// western decodes a text that is certainly in Windows-1252, which includes ISO 8859-1: it has letters of one language and is well formed,
// and so it is in no other table with another result, or it has words of that language; or it has known words with all letters that
// other tables have others for, as lists of names do. The names are those of the candidates.
func western(content []byte) (out string, certain bool, names []string) {
	out, ok := strictly(charmap.Windows1252, content)
	ok = ok && wellFormed(out) && lettersOf(out, func(r rune) bool { return r >= 0x80 }) <= lettersOf(out, isLetter)
	if ok {
		names = []string{"Windows-1252"}
	}
	var others []string
	for _, s := range singles {
		if other, found := strictly(s.enc, content); found && other != out && wellFormed(other) {
			names = append(names, s.name)
			others = append(others, other)
		}
	}
	if !ok {
		return "", false, names
	}
	for _, l := range westerns {
		if !strings.ContainsFunc(out, func(r rune) bool { return r >= 0x80 && unicode.IsLetter(r) && !strings.ContainsRune(l.letters, r) }) &&
			(len(others) == 0 || speaks(out, l.words)) {
			return out, true, nil
		}
	}
	if recognised(out, others) {
		return out, true, nil
	}
	return "", false, names
}

// lettersOf counts the letters of a kind.
func lettersOf(text string, kind func(rune) bool) int {
	n := 0
	for _, r := range text {
		if unicode.IsLetter(r) && kind(r) {
			n++
		}
	}
	return n
}

// speaks reports whether a text has frequent words of a language.
func speaks(text, frequent string) bool {
	known := elements(frequent)
	score := 0
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		switch {
		case !known[word]:
		case strings.ContainsFunc(word, func(r rune) bool { return r >= 0x80 }):
			score += 2
		default:
			score++
		}
	}
	return score >= 2
}

// The marks of texts, by their places: openings are before a word and their closings, which may be one of several, are behind one.
const (
	openings = "“‘„‚«‹»›”’¿¡"
	closings = "”’“‘»›«‹…™®"
	alone    = "–—•·€£§©°±²³®™…¼½¾«»´\u00ad\u00a0"
)

var closingOf = map[rune]string{'“': "”“", '„': "“”", '‚': "‘’", '«': "»", '‹': "›", '¿': "?", '¡': "!"}

// wellFormed reports whether the characters beside ASCII of a text are at places where they are in words and sentences. Read in the wrong
// table, letters are marks within words, capital letters behind small ones, or letters of two scripts in a word.
func wellFormed(text string) bool {
	r := []rune(text)
	at := func(i int) rune {
		if i < 0 || i >= len(r) {
			return ' '
		}
		return r[i]
	}
	for i, c := range r {
		before, behind := at(i-1), at(i+1)
		switch {
		case c < 0x80 && !unicode.IsLetter(c):
		case c < 0x80 && !unicode.IsLetter(before), c < 0x80 && before < 0x80:
		case unicode.IsLetter(c) || unicode.IsMark(c):
			if unicode.IsLower(before) && unicode.IsUpper(c) || unicode.IsLetter(before) && latin(before) != latin(c) ||
				unicode.IsUpper(c) && unicode.IsUpper(at(i-2)) && unicode.IsLower(before) {
				return false
			}
		case !placed(c, before, behind) || !closed(c, before, r[i+1:]):
			return false
		}
	}
	return true
}

func latin(r rune) bool { return unicode.Is(unicode.Latin, r) || 0x300 <= r && r <= 0x36f }

// placed reports whether a mark may stand between two characters.
func placed(c, before, behind rune) bool {
	word, next := unicode.IsLetter(before), unicode.IsLetter(behind)
	switch {
	case word && next:
		return c == '’' || c == '\u00ad'
	case next:
		return strings.ContainsRune(openings+"\u00a0", c)
	case word:
		return strings.ContainsRune(closings, c) || c == '\u00a0' && strings.ContainsRune(":;!?»€%–0123456789", behind)
	}
	return strings.ContainsRune(openings+closings+alone, c)
}

// closed reports whether what follows an opening mark has its closing one.
func closed(c, before rune, rest []rune) bool {
	ends := closingOf[c]
	return ends == "" || unicode.IsLetter(before) || strings.ContainsAny(string(rest), ends) || c == '“' // closes in German
}
