package extract

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	xunicode "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// texts are in the languages of the encodings.
var (
	chinese     = "高级 Go 工程师，熟悉 Redis 与 Temporal，五年经验。负责后端微服务的设计与开发，薪资面议。"
	traditional = "資深 Go 工程師，熟悉 Redis 與 Temporal，五年經驗。負責後端微服務的設計與開發。"
	japaneseOne = "シニア Go エンジニアを募集しています。Redis と Temporal の経験が必要です。"
	koreanOne   = "시니어 Go 엔지니어를 모집합니다. Redis 와 Temporal 경험이 필요합니다."
	french      = "Ingénieur Go à Zürich – « cœur » du système, salaire 90 000 €"
	german      = "Führt „große“ Teams – Gehalt 90.000 €, Köln/Düsseldorf, Résumé beifügen"
	spanish     = "Señor, ¿habla español? ¡Sí! Años de experiencia: 5"
	portuguese  = "Programação de sistemas: não há exigência de diploma"
	swedish     = "Vi söker en Go-utvecklare på Södermalm, med års erfarenhet"
	russian     = "Инженер Go, знание Redis и опыт работы от трёх лет"
	hindi       = "गो इंजीनियर, पाँच वर्ष का अनुभव"
	arabic      = "مهندس برمجيات، خبرة خمس سنوات"
	english     = "It’s a “smart” quote — and a • bullet…"
)

func encode(t *testing.T, enc encoding.Encoding, text string) []byte {
	t.Helper()
	b, err := enc.NewEncoder().Bytes([]byte(text))
	require.NoError(t, err)
	return b
}

func TestText_EachEncoding_IsConvertedOrNamed(t *testing.T) { // FU1
	t.Parallel()
	utf16 := func(e xunicode.Endianness, p xunicode.BOMPolicy) encoding.Encoding { return xunicode.UTF16(e, p) }
	for name, c := range map[string]struct {
		enc   encoding.Encoding
		texts []string
	}{
		"UTF-16LE":          {utf16(xunicode.LittleEndian, xunicode.UseBOM), []string{chinese, koreanOne, english, "x", "高级", "🙂 Go"}},
		"UTF-16BE":          {utf16(xunicode.BigEndian, xunicode.UseBOM), []string{chinese, koreanOne, english, "x", "高级"}},
		"UTF-16LE, no mark": {utf16(xunicode.LittleEndian, xunicode.IgnoreBOM), []string{chinese, traditional, japaneseOne, koreanOne, english, russian, hindi, arabic, "Go 🙂", "MZ", "GIF89a", "高级工程师 镕铁", "第一天 开始 Go", "═════ • Go, Redis"}},
		"UTF-16BE, no mark": {utf16(xunicode.BigEndian, xunicode.IgnoreBOM), []string{chinese, traditional, japaneseOne, koreanOne, english, russian, hindi, arabic, "Go 🙂", "MZ", "GIF89a", "高级工程师 镕铁", "第一天 开始 Go", "═════ • Go, Redis"}},
		"UTF-32LE":          {utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), []string{chinese, english}},
		"UTF-32BE":          {utf32.UTF32(utf32.BigEndian, utf32.UseBOM), []string{chinese, english}},
		"GB18030":           {simplifiedchinese.GB18030, []string{chinese, "后端工程师", "个人简历\r\n姓名：陈小明", "高级 Go 工程师", "GIF89a 后端工程师", strings.Repeat(chinese, 100), "\ufeff" + chinese}},
		"Big5":              {traditionalchinese.Big5, []string{traditional, "資深工程師", "履歷表\r\n姓名：陳小明", strings.Repeat(traditional, 100)}},
		"Shift-JIS":         {japanese.ShiftJIS, []string{japaneseOne, "エンジニア"}},
		"EUC-JP":            {japanese.EUCJP, []string{japaneseOne}},
		"ISO-2022-JP":       {japanese.ISO2022JP, []string{japaneseOne}},
		"EUC-KR":            {korean.EUCKR, []string{koreanOne, "이력서\r\n이름: 김철수\r\nGo 백엔드 개발자", strings.Repeat(koreanOne, 100)}},
		"Windows-1252":      {charmap.Windows1252, []string{french, german, spanish, portuguese, swedish, english, "Zoë writes it for you", "MZ Labs cherche un ingénieur"}},
		"ISO 8859-1":        {charmap.ISO8859_1, []string{"Ingénieur Go à Zürich", "Söder", spanish}},
	} {
		for _, text := range c.texts {
			out, err := read(encode(t, c.enc, text), 1<<20)
			require.NoError(t, err, "%s %s", name, text)
			require.Equal(t, strings.TrimPrefix(text, "\ufeff"), strings.TrimPrefix(out, "\ufeff"), name)
		}
	}
}

func TestText_EncodingIsNotCertain_IsRefused(t *testing.T) { // FU1
	t.Parallel()
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"Russian":             {encode(t, charmap.Windows1251, "Инженер Go, знание Redis и опыт работы"), "save it as UTF-8"},
		"Russian, KOI8-R":     {encode(t, charmap.KOI8R, "Инженер Go, знание Redis и опыт работы"), "save it as UTF-8"},
		"Polish":              {encode(t, charmap.Windows1250, "Zażółć gęślą jaźń, inżynier Go w Łodzi"), "save it as UTF-8"},
		"Czech":               {encode(t, charmap.Windows1250, "Příliš žluťoučký kůň, vývojář"), "save it as UTF-8"},
		"Turkish":             {encode(t, charmap.Windows1254, "Yazılım mühendisi aranıyor, İstanbul, güçlü"), "save it as UTF-8"},
		"Greek":               {encode(t, charmap.Windows1253, "Μηχανικός λογισμικού"), "save it as UTF-8"},
		"Macintosh":           {encode(t, charmap.Macintosh, "Ingénieur à Zürich"), "save it as UTF-8"},
		"DOS":                 {encode(t, charmap.CodePage850, "Ingénieur à Zürich"), "save it as UTF-8"},
		"damaged UTF-8":       {[]byte("高级工程师，\xff熟悉"), "the text is UTF-8, but byte 19 is not: save it again as UTF-8"},
		"cut UTF-8":           {[]byte(chinese[:len(chinese)-1]), "the text is UTF-8, but byte "},
		"odd UTF-16":          {append(encode(t, xunicode.UTF16(xunicode.LittleEndian, xunicode.UseBOM), chinese), 'x'), "the file is damaged"},
		"half a pair, UTF-16": {[]byte("\xff\xfe\x00\xd8a\x00"), "the file is damaged"},
		"NUL":                 {[]byte("Go\x00engineer"), "the text contains NUL characters"},
		"NUL, UTF-16":         {[]byte("\xff\xfea\x00\x00\x00b\x00"), "the text contains NUL characters"},
		"NUL, even length":    {[]byte("Anna Bauer\x00 cook, ten years in hotels."), "the text contains NUL characters"},
		"NUL, at the end":     {[]byte(strings.Repeat("Name: Anna\nCity: Graz\n", 30) + "\x00\x00"), "the text contains NUL characters"},
		"NUL, four bytes":     {[]byte("abc\x00"), "the text contains NUL characters"},
		"NUL between fields":  {[]byte("name\x00value\x00others\x00"), "the text contains NUL characters"},
		"NUL, Windows-1252":   {encode(t, charmap.Windows1252, "K\u00f6chin\x00 in Z\u00fcrich und K\u00f6ln, f\u00fcr \u00fcber zehn Jahre!!"), "the text contains NUL characters"},
		"NUL, GB18030":        {encode(t, simplifiedchinese.GB18030, "高级工程师\x00，熟悉微服务的设计 "), "the text contains NUL characters"},
		"UTF-16 in a log":     {append([]byte("the first start of the log\n\n"), encode(t, xunicode.UTF16(xunicode.LittleEndian, xunicode.IgnoreBOM), english+english)...), "neither text nor"},
		"binary":              {[]byte{0, 1, 2, 3}, "neither text nor"},
		"random":              {[]byte("\x8f\x00\x91\xfe\x00\x00\x07\x81\x93\xa0\x00\x02"), "neither text nor"},
	} {
		out, err := read(c.content, 1000)
		require.ErrorContains(t, err, c.want, "%s %q", name, out)
	}
}

// A NUL between the characters of a text never makes others of them.
func TestText_NULInUTF8_IsRefused(t *testing.T) { // FU1
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, text := range []string{
		chinese, traditional, japaneseOne, koreanOne, french, german, spanish, portuguese, swedish, english, russian, hindi, arabic,
		"Μηχανικός λογισμικού, πέντε χρόνια", "מהנדס תוכנה, חמש שנים", "วิศวกรซอฟต์แวร์ ห้าปี", "Kỹ sư phần mềm, năm năm", "Ten years of Go, Redis, SQL\n", "🙂🙃 Go 👩‍💻 Redis 🚀🚀",
	} {
		for range 400 {
			characters := []rune(text)
			for range 1 + random.IntN(5) {
				characters = slices.Insert(characters, random.IntN(len(characters)+1), 0)
			}
			out, err := read([]byte(string(characters)), 1000)
			require.ErrorIs(t, err, ErrNUL, "%q %q", string(characters), out)
		}
	}
}

func TestText_DocumentStatesItsEncoding_IsConverted(t *testing.T) { // FU1
	t.Parallel()
	for _, c := range []struct {
		enc  encoding.Encoding
		page string
		want string
	}{
		{simplifiedchinese.GBK, `<html><head><meta charset="gb2312"></head><body>高级</body></html>`, "高级"},
		{simplifiedchinese.GBK, `<?xml version="1.0" encoding="GB2312"?><a>高级</a>`, "高级"},
		{traditionalchinese.Big5, `<html><head><meta http-equiv="Content-Type" content="text/html; charset=big5"></head><body>資深</body></html>`, "資深"},
		{charmap.Windows1251, `<html><meta charset="windows-1251"><body>Инженер</body></html>`, "Инженер"},
		{charmap.ISO8859_1, `<html><meta charset="iso-8859-1"><body>Zoë þ</body></html>`, "Zoë þ"},
		{xunicode.UTF16(xunicode.LittleEndian, xunicode.UseBOM), `<html><body>高级</body></html>`, "高级"},
		{xunicode.UTF16(xunicode.LittleEndian, xunicode.UseBOM), `<?xml version="1.0" encoding="UTF-16"?><a>高级</a>`, "高级"},
		{encoding.Nop, `<html><meta charset="gb2312"><body>高级</body></html>`, "高级"},
	} {
		out, err := read(encode(t, c.enc, c.page), 1000)
		require.NoError(t, err, c.page)
		require.Equal(t, c.want, out)
	}
}

// Names are few letters, but known ones.
func TestText_NamesInWindows1252_AreRead(t *testing.T) { // FU1
	t.Parallel()
	for _, text := range []string{
		"Müller", "Müller\nKöln\nJosé\nBjörn\nZoë\n", "Muñoz", "García", "Núñez", "François", "Hélène", "João", "Ødegård", "Bjørn", "Peña\nMuñoz\nPérez\n",
		"name,city\nJosé,Bogotá\nÍñigo,Cádiz\n", "Renée, Noël, Chloé", "Ramírez González López Martínez Sánchez", "Gonçalves", "Conceição", "Niccolò", "Forlì",
		"Sørensen", "Jyväskylä", "Hämäläinen", "Élodie", "Guðrún Jónsdóttir", "naïve café résumé", "Curaçao", "Skills: Go\nName: Frédéric Lefèvre\n",
		"Köln", "José", "Zoë", "René", "Göteborg, Växjö", "Contact: Jörg Schäfer, Nürnberg", "MÜLLER, KÖLN", "García, año 2020, Ibáñez",
	} {
		out, err := read(encode(t, charmap.Windows1252, text), 1000)
		require.NoError(t, err, text)
		require.Equal(t, text, out)
	}
}
