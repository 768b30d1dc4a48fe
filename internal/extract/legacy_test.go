package extract

import (
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// written are sentences of a language and the encodings in which it was written.
var written = []struct {
	encodings []encoding.Encoding
	texts     []string
}{
	{[]encoding.Encoding{simplifiedchinese.GB18030, simplifiedchinese.GBK}, []string{
		chinese, "招聘高级后端工程师,工作地点杭州。\n要求:五年以上经验,熟悉数据库。\n", "简历:熟悉 Go\n", "张三，男，28岁，本科\n", "陈静\n本科\n", "项目经理 Go", "工作经验", "前端工程师",
	}},
	{[]encoding.Encoding{traditionalchinese.Big5}, []string{
		traditional, "誠徵資深後端工程師，工作地點臺北。\n", "履歷：熟悉 Go", "林志豪 工程師", "技能：Go、SQL", "專長：Python", "學歷：碩士", "應徵：工程師", "臺北\n", "陳美玲",
	}},
	{[]encoding.Encoding{japanese.ShiftJIS, japanese.EUCJP}, []string{
		japaneseOne, "経験豊富なエンジニアを募集しています。勤務地は大阪です。\n", "田中一郎", "山田太郎", "職務経歴", "高橋健一、大阪府", "佐藤花子\n東京都", "氏名 伊藤",
		"自己紹介", "スキル:Go", "ｶﾀｶﾅ ﾃｽﾄ", "鈴木一郎 エンジニア", "東京",
	}},
	{[]encoding.Encoding{korean.EUCKR}, []string{
		koreanOne, "서울에서 경력 개발자를 모집합니다.\n", "김영희\n", "이력서: Go\n", "자기소개서", "경력 10년", "이영희 개발자",
	}},
	{[]encoding.Encoding{charmap.Windows1250, charmap.ISO8859_2, charmap.CodePage852}, []string{
		"Szukamy doświadczonego programisty Go z Wrocławia.\nWymagania: pięć lat doświadczenia.", "Imię: Małgorzata Wiśniewska\nMiasto: ul. Świętojańska 5, Gdańsk",
		"Łódź", "Źródło", "Małgorzata", "ąęśćż", "Pracowałem jako księgowy w spółce, Żółw, pięć", "Język polski, ojczysty",
	}},
	{[]encoding.Encoding{charmap.Windows1250, charmap.ISO8859_2, charmap.CodePage852}, []string{
		"Hledáme zkušeného programátora v Brně. Nabízíme příjemné prostředí.", "Jméno: Tomáš Šťastný\nVzdělání: fakulta", "Jiří", "Dvořák", "Plzeň", "Ústí nad Labem",
	}},
	{[]encoding.Encoding{charmap.Windows1250, charmap.ISO8859_2, charmap.CodePage852}, []string{
		"Önéletrajz\nNév: Kovács Ödön\nTíz év fejlesztői tapasztalat, győri egyetem", "Győr", "Szűcs", "Tőke", "Szakmai tapasztalat: műszaki vezető, üzemeltető mérnök",
	}},
	{[]encoding.Encoding{charmap.Windows1251, charmap.KOI8R, charmap.ISO8859_5, charmap.CodePage866, charmap.MacintoshCyrillic}, []string{
		"Ищем опытного разработчика на Go в Москве.\nТребования: пять лет опыта, знание баз данных.", "Имя: Анна Сергеевна Кузнецова", "Иван", "да", "Опыт: Go",
	}},
	{[]encoding.Encoding{charmap.Windows1254, charmap.ISO8859_9}, []string{
		"Özgeçmiş\nAdı: Gülşen Çağlar\nİş deneyimi: beş yıl yazılım geliştirici", "Ayşe", "Yıldız", "İş", "Işık", "Ücret görüşülür", "Müşteri ile görüşme için",
	}},
	{[]encoding.Encoding{charmap.Windows1253, charmap.ISO8859_7}, []string{"Ζητείται έμπειρος προγραμματιστής στην Αθήνα.", "Αθήνα"}},
	{[]encoding.Encoding{charmap.Windows1252, charmap.ISO8859_15, charmap.CodePage850, charmap.CodePage437, charmap.Macintosh}, []string{
		"Wir suchen einen erfahrenen Entwickler für München.\nGehalt: 70.000", "Name: Jörg Weiß\nStraße: Königsallee 5, Düsseldorf", "Äpfel, Öl und Übermut", "für", "Müller",
		"Größe über München", "Köln", german,
	}},
	{[]encoding.Encoding{charmap.Windows1252, charmap.ISO8859_15, charmap.CodePage850, charmap.Macintosh}, []string{
		"Nous cherchons un développeur expérimenté à Besançon, rémunération élevée.", "Prénom : François, né à Orléans", "été", "voilà", "à la carte", "Zoé", "à côté", french,
	}},
	{[]encoding.Encoding{charmap.Windows1252, charmap.ISO8859_15, charmap.CodePage850, charmap.Macintosh}, []string{
		"Vi söker en erfaren utvecklare i Göteborg, lön efter överenskommelse.", "Göteborg", "ÅÄÖ", "för", "Umeå är fin", "Søren Ærø", "København", "Ålborg", swedish,
	}},
	{[]encoding.Encoding{charmap.Windows1252, charmap.CodePage850, charmap.Macintosh}, []string{
		spanish, portuguese, "¿Qué?", "Muñoz", "Información", "São João", "Formação", "más allá está", "però è già", "città",
	}},
	{[]encoding.Encoding{charmap.Windows1257, charmap.ISO8859_13}, []string{"Meklējam pieredzējušu programmētāju Rīgā.", "Ieškome patyrusio programuotojo Šiauliuose, ąžuolų gatvė"}},
	{[]encoding.Encoding{charmap.Windows874}, []string{"รับสมัครโปรแกรมเมอร์ที่มีประสบการณ์ในกรุงเทพ"}},
	{[]encoding.Encoding{charmap.Windows1255}, []string{"דרוש מפתח מנוסה בתל אביב, ניסיון של חמש שנים"}},
	{[]encoding.Encoding{charmap.Windows1256, charmap.ISO8859_6}, []string{"مطلوب مطور برامج خبير في القاهرة"}},
}

func TestText_LegacyEncodingShortened_RightTextOrRefused(t *testing.T) { // FU1
	t.Parallel()
	right, all := 0, 0
	for _, l := range written {
		for _, enc := range l.encodings {
			for _, text := range l.texts {
				for _, start := range []int{0, 5, 11} {
					for _, n := range []int{2, 4, 8, 16, 1000} {
						runes := []rune(text)
						if start >= len(runes) {
							continue
						}
						part := string(runes[start:min(start+n, len(runes))])
						b, err := enc.NewEncoder().Bytes([]byte(part))
						if err != nil || utf8.Valid(b) { // such as 悉 in GB18030, the bytes of which are a letter of UTF-8
							continue
						}
						all++
						out, err := read(b, 1<<20)
						if _, refused := errors.AsType[Reason](err); refused {
							continue
						}
						right++
						if err != nil || part != out {
							t.Errorf("%v %q -> %q %v", enc, part, out, err)
						}
					}
				}
			}
		}
	}
	t.Logf("%d of %d are certain", right, all)
	require.Greater(t, 8*right, all, "too many texts are refused")
}
