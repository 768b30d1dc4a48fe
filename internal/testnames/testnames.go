// Package testnames has names, titles, identities and language codes as users in many countries have them. Tests of every layer use the
// same rows: the next oddity is one more row.
package testnames

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Row is one user.
type Row struct {
	Language string // in English
	Code     string // the language as a browser, an operating system or a user states it
	Tag      string // as it is stored and sent
	Name     string
	Title    string // of a conference
	Identity string // as an identity provider issues it
}

// Stored returns the form in which the name is stored and sent.
func (r Row) Stored() string { return Stored(r.Name) }

// Stored returns the form in which a text is stored and sent.
func Stored(text string) string { return norm.NFC.String(strings.TrimSpace(text)) }

// All returns all rows. Characters that cannot be seen, or that editors change, are escaped.
func All() []Row {
	return []Row{
		{"Japanese, ideographic space", "ja-JP", "ja-JP", "田中\u3000太郎", "定例会議\u3000（第３回）", "田中太郎"},
		{"Japanese, variation sequence", "ja", "ja", "葛\U000e0100城 さくら", "葛\U000e0100飾区", "sakura@例え.jp"},
		{"Chinese, simplified", "zh-Hans-CN", "zh-Hans-CN", "欧阳·娜娜", "双周例会：预算", "u/欧阳"},
		{"Chinese, traditional", "zh-TW", "zh-TW", "𠮷野家 陳", "週會：預算", "陳|7"},
		{"Cantonese", "yue-HK", "yue-HK", "陳大文", "開會啦", "dai-man"},
		{"Korean, decomposed", "ko_KR.UTF-8", "ko-KR", "\u1112\u1161\u11ab지민", "주간 회의", "한지민"},
		{"Persian, joiner", "fa", "fa", "علی\u200cرضا رضایی", "جلسه\u200cی هفتگی", "علیرضا"},
		{"Arabic", "ar-EG", "ar-EG", "محمد بن عبد الله", "اجتماع الأسبوع 12/3", "محمد"},
		{"Hebrew, deprecated code and points", "iw_IL", "he-IL", "שָׂרָה כֹּהֵן", "פגישה (סודי!)", "שרה"},
		{"Hebrew, isolated Latin", "he", "he", "\u2067דנה \u2066(CTO)\u2069\u2069", "צוות \u2068R&D\u2069", "dana"},
		{"Hindi, joiner", "hi-IN", "hi-IN", "क्\u200dषितिज शर्मा", "साप्ताहिक बैठक", "शर्मा"},
		{"Bengali", "bn", "bn", "রবীন্দ্রনাথ ঠাকুর", "সভা", "ঠাকুর"},
		{"Tamil", "ta-LK", "ta-LK", "தமிழ்ச்செல்வன்", "கூட்டம்", "செல்வன்"},
		{"Thai", "th-TH", "th-TH", "สมชาย ใจดี", "ประชุมประจำสัปดาห์", "สมชาย"},
		{"Khmer, invisible word break", "km", "km", "សុខ\u200bវណ្ណា", "កិច្ចប្រជុំ", "វណ្ណា"},
		{"Burmese", "my", "my", "အောင်ဆန်းစုကြည်", "အစည်းအဝေး", "စုကြည်"},
		{"Vietnamese, decomposed", "vi", "vi", "Nguye\u0302\u0303n Th\u1ecb A\u0301nh", "H\u1ecdp tu\u1ea7n", "ánh"},
		{"Russian", "RU", "ru", "Ёлкин Пётр Ильи́ч", "Планёрка № 7", "ёлкин"},
		{"Serbian, Latin script", "sr_RS@latin", "sr-Latn-RS", "Đorđe Čović", "Sastanak", "đorđe"},
		{"Greek, polytonic", "el", "el", "Ἀριστοτέλης", "Συνάντηση ᾧ", "ἀριστοτέλης"},
		{"Turkish", "tr", "tr", "İbrahim Iğdır", "Haftalık toplantı", "ığdır"},
		{"German", "de-AT", "de-AT", "Zoë Müller-Lüdenscheidt", "Jour fixe – Größe", "zoë"},
		{"French, no-break spaces", "fr-CA", "fr-CA", "Jean\u00a0Noël\u202fd’Œuvre", "Point\u00a0: «\u202fbudget\u202f»", "jean-noël"},
		{"Portuguese", "pt-BR", "pt-BR", "João Araújo", "Reunião", "joão"},
		{"Spanish, Latin America", "es-419", "es-419", "Ñusta Ibáñez", "¿Qué tal?", "ñusta"},
		{"Irish", "ga", "ga", "Seán Ó hUallacháin", "Cruinniú", "seán"},
		{"Hawaiian", "haw", "haw", "Kahoʻokāne Keawe", "Hālāwai", "kāne"},
		{"Georgian", "ka", "ka", "ნინო ჭავჭავაძე", "შეხვედრა", "ნინო"},
		{"Amharic", "am", "am", "አበበ ቢቂላ", "ስብሰባ", "አበበ"},
		{"Tibetan", "bo", "bo", "བསྟན་འཛིན", "ཚོགས་འདུ", "bo-1"},
		{"Mongolian", "mn-Cyrl-MN", "mn-Cyrl-MN", "Өлзийтийн Сүхбаатар", "Хурал", "сүх"},
		{"Emoji: a family, a flag, a skin tone", "en_US.UTF-8", "en-US", "👨\u200d👩\u200d👧\u200d👦 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 👍🏽 ❤\ufe0f", "🎉 party", "emoji"},
		{"Mandarin, older code", "cmn-Hant", "zh-Hant", "林\u2003志玲", "會議", "lin"},
		{"spaces at the ends", "EN", "en", " \u3000Ann\u2009Lee\u00a0", " weekly ", "ann lee"},
		{"Urdu, marks of direction", "ur-PK", "ur-PK", "\u200fمحمد علی جناح\u200f", "اجلاس (۳) 12/3", "جناح"},
		{"Uyghur", "ug_CN", "ug-CN", "ئابدۇرېھىم ئۆتكۈر", "يىغىن", "ئۆتكۈر"},
		{"Yiddish, deprecated code", "ji", "yi", "יצחק באַשעוויס־זינגער", "די זיצונג: 10%", "באַשעוויס"},
		{"Divehi", "dv-MV", "dv-MV", "މުހައްމަދު ޖަމީލް", "ބައްދަލުވުން [2]", "ޖަމީލް"},
		{"Fulah, Adlam above U+FFFF", "ff-Adlm-GN", "ff-Adlm-GN", "𞤀𞤣𞤤𞤢𞤥 𞤄𞤢𞤪𞥆𞤵", "𞤦𞤢𞤼𞤵", "𞤄𞤢𞤪𞥆𞤵"},
		{"Armenian", "hy", "hy", "Արամ Խաչատրյան", "Ժողով", "արամ"},
		{"Sinhala, joiner", "si-LK", "si-LK", "ශ්\u200dරී ජයවර්ධන", "රැස්වීම", "ජයවර්ධන"},
		{"Lao", "lo_LA", "lo-LA", "ພູມີ ວົງວິຈິດ", "ກອງປະຊຸມ", "ພູມີ"},
		{"Mongolian, vertical script", "mn-Mong-CN", "mn-Mong-CN", "ᠴᠢᠩᠭᠢᠰ\u180e\u180bᠬᠠᠭᠠᠨ", "ᠬᠤᠷᠠᠯ", "ᠴᠢᠩᠭᠢᠰ"},
		{"Norwegian", "nb_NO.ISO8859-1", "nb-NO", "Åse Ødegård", "Møte", "åse"},
		{"one letter", "ja_JP.eucJP", "ja-JP", "O", "X", "o"},
		{"the longest, without spaces", "en", "en", strings.Repeat("👩🏽\u200d🔬", 50), strings.Repeat("会", 200), strings.Repeat("ば", 85)},
		{"what programs take for a value", "C", "en", "null", "undefined", "NaN"},
		{"what programs take for a path or a format", "en_GB@euro", "en-GB", "../../etc/passwd%00", "100%s {{name}} ${x} \\n", "a/../b%2F?x#y"},
		{"what spreadsheets take for a formula", "en", "en", "=HYPERLINK(\"https://x.example\",\"a\")", "@SUM(1+1)*cmd|' /C calc'!A0", "+49 30 1234"},
		{"what pages take for markup", "en-GB", "en-GB", "<img src=x onerror=alert(1)>", "</title><script>alert(1)</script>", "o'neil&co"},
	}
}
