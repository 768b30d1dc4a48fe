package berth_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/testnames"
)

func TestParseLanguage_FormsInUse_OneCanonicalTag(t *testing.T) {
	t.Parallel()
	for _, n := range testnames.All() {
		tag, err := berth.ParseLanguage("srcLang", n.Code)
		require.NoError(t, err, n.Language)
		require.Equal(t, n.Tag, tag, n.Language)
	}
	for canonical, forms := range map[string]string{
		"en":          "en EN eng en-Latn C POSIX C.UTF-8 c",
		"en-US":       "en-US en_US en_us.UTF-8 en-us EN-US en-US@posix en_US.ISO8859-1@euro en-US-u-hc-h23 en-US-x-lvariant",
		"zh":          "zh ZH cmn zho chi zh-cmn zh-ZZ",
		"zh-Hans":     "zh-Hans zh_hans zh-hans zh-CHS cmn-Hans",
		"zh-Hant":     "zh-Hant zh-CHT",
		"zh-Hans-CN":  "zh-Hans-CN zh-cmn-Hans-CN zh_Hans_CN zh-hans-cn",
		"zh-TW":       "zh-TW zh_TW.Big5 cmn-TW",
		"yue":         "yue zh-yue",
		"nan":         "nan zh-min-nan",
		"he":          "he iw heb",
		"id":          "id in",
		"yi":          "yi ji",
		"nb":          "nb nob",
		"no":          "no nor",
		"sr-Latn":     "sr-Latn sh sr@latin sr_Latn",
		"sr-Cyrl-RS":  "sr-Cyrl-RS sr_RS@cyrillic",
		"ca-valencia": "ca-valencia ca@valencia",
		"uz-Cyrl":     "uz@cyrillic uz-Cyrl",
		"pt-BR":       "pt-BR pt_BR PT-br pt-BR.UTF-8",
		"es-419":      "es-419 ES_419",
		"ar":          "ar arb",
		"de-1996":     "de-1996",
		"tlh":         "i-klingon tlh",
		"ru":          "ru ru-Cyrl rus",
	} {
		for form := range strings.FieldsSeq(forms) {
			tag, err := berth.ParseLanguage("srcLang", form)
			require.NoError(t, err, form)
			require.Equal(t, canonical, tag, form)
		}
	}
	for _, form := range []string{
		"", " ", "e", "xx", "english", "English", "Deutsch", "中文", "en-", "-en", "en--US", "en US", "n en", "und", "mul", "mis", "zxx", "qaa", "qtz", "x-foo",
		"root", "*", "en,de", "en;q=0.9", "en-US,en;q=0.9", "aa-BB-ZZ", "en-aaa", "true", "0", "../en", "en\x00", strings.Repeat("en-", 100),
	} {
		_, err := berth.ParseLanguage("srcLang", form)
		require.Equal(t, "srcLang", wrong(t, err), "%q", form)
	}
}

func TestParseLanguage_CodesOfEarlierVersions_StayValid(t *testing.T) {
	t.Parallel()
	changed := map[string]string{"cs": "cs", "iw": "he", "in": "id", "ji": "yi", "tw": "ak", "tl": "fil", "bh": "bho", "mo": "ro-MD", "sh": "sr-Latn"}
	for code := range strings.FieldsSeq(`aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee
		el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv
		ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl
		nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta
		te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
		ast ceb fil hsb haw hmn kab mai nan pap szl yue wuu zgh`) {
		tag, err := berth.ParseLanguage("srcLang", code)
		require.NoError(t, err, code)
		if want, ok := changed[code]; ok {
			require.Equal(t, want, tag)
		} else {
			require.Equal(t, code, tag)
		}
	}
}

func TestParseLanguage_AnyText_IsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,3}(\.UTF-8)?(@[a-z]+)?`).Draw(t, "text")
		tag, err := berth.ParseLanguage("srcLang", text)
		if err != nil {
			return
		}
		again, err := berth.ParseLanguage("srcLang", tag)
		require.NoError(t, err, tag)
		require.Equal(t, tag, again)
		pair := berth.TranslateCapability(tag, "vo")
		parsed, err := berth.ParseCapability("capabilities", pair)
		require.NoError(t, err)
		require.Equal(t, pair, parsed)
		declared, ok := berth.PairOf(pair)
		require.True(t, ok)
		require.Equal(t, berth.LanguagePair{Src: tag, Tgt: "vo"}, declared)
	})
}

func TestParseCapability_LanguagePairs_OneForm(t *testing.T) {
	t.Parallel()
	for form, canonical := range map[string]string{
		"translate:en-es": "translate:en-es", "translate:EN-es": "translate:en-es", "translate:iw-en": "translate:he-en",
		"translate:pt-BR-en": "translate:pt_BR-en", "translate:en-pt_br": "translate:en-pt_BR", "translate:zh-Hans-zh-Hant": "translate:zh_Hans-zh_Hant",
		"translate:en_US.UTF-8-es": "translate:en_US-es", "asr": "asr", "Translate:x": "Translate:x", "gpu/a100": "gpu/a100",
	} {
		parsed, err := berth.ParseCapability("capabilities", form)
		require.NoError(t, err, form)
		require.Equal(t, canonical, parsed)
	}
	for _, form := range []string{"", "translate:", "translate:en", "translate:en-", "translate:en-xx", "translate:en-pt-pt", "a b", "translate:a-b-c"} {
		_, err := berth.ParseCapability("capabilities", form)
		require.Equal(t, "capabilities", wrong(t, err), form)
	}
}

func TestLanguageIndex_WantedPair_ClosestDeclaredFirst(t *testing.T) {
	t.Parallel()
	declare := func(pairs string) berth.LanguageIndex {
		all := []string{"asr", "translate:broken"}
		for pair := range strings.FieldsSeq(pairs) {
			all = append(all, "translate:"+pair)
		}
		return berth.NewLanguageIndex(all)
	}
	for _, c := range []struct{ declared, wanted, found string }{
		{"pt-en", "pt_BR-en", "pt-en"},
		{"pt-en pt_BR-en", "pt_BR-en", "pt_BR-en pt-en"},
		{"pt_PT-en pt-en", "pt_BR-en", "pt-en pt_PT-en"},
		{"pt_BR-en", "pt-en", "pt_BR-en"},
		{"zh-en", "zh_Hans_CN-en", "zh-en"},
		{"zh-en zh_CN-en zh_Hans-en", "zh-en", "zh-en zh_CN-en,zh_Hans-en"},
		{"zh-en zh_Hans-en zh_CN-en", "zh_TW-en", ""},
		{"zh_Hant-en zh-en", "zh_TW-en", "zh_Hant-en"},
		{"zh_TW-en", "zh_HK-en", "zh_TW-en"},
		{"zh_TW-en", "zh-en", ""},
		{"sr-en", "sr_Latn-en", ""},
		{"sr_Latn-en", "sr_Latn_RS-en", "sr_Latn-en"},
		{"iw-en", "he-en", "iw-en"}, // of an earlier version
		{"no-en", "nb-en", "no-en"},
		{"nn-en", "no-en", ""},
		{"zh-yue", "zh-yue", "zh-yue"},
		{"yue-en", "zh-en", ""},
		{"zh_Hans-zh_Hant", "zh_CN-zh_TW", "zh_Hans-zh_Hant"},
		{"pt_PT-pt_BR", "pt_BR-pt_PT", ""}, // the other way
		{"pt_PT-pt_BR", "pt_PT-pt_BR", "pt_PT-pt_BR"},
		{"en-es", "es-en", ""},
		{"en-fr", "en-es", ""},
	} {
		wanted, _ := berth.PairOf("translate:" + c.wanted)
		var groups []string
		for _, group := range declare(c.declared).Find(wanted) {
			var names []string
			for _, p := range group {
				names = append(names, strings.TrimPrefix(berth.TranslateCapability(p.Src, p.Tgt), "translate:"))
			}
			groups = append(groups, strings.Join(names, ","))
		}
		require.Equal(t, c.found, strings.Join(groups, " "), "%s for %s", c.declared, c.wanted)
	}
}
