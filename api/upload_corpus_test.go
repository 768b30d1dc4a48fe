package api_test

import (
	"bytes"
	"image"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// uploads states what each file of the corpus gives: its text, the size of its image, or the reason of a refusal.
var uploads = map[string]struct {
	text, size, reason string
}{
	"02-bel.txt":       {text: "Go engineer\a bell\n"},
	"02-esc.txt":       {text: "Resume \x1b[1mJohn\x1b[0m Go engineer\n"},
	"02-ff.txt":        {text: "Page one: Go engineer\fPage two: Redis\n"},
	"02-gif89a.txt":    {text: "GIF89a decoder maintainer wanted. Go, C.\n"},
	"02-gz.txt":        {reason: "has no visible characters"},
	"02-html-lead.txt": {text: "<p>Go engineer</p> wanted\n"},
	"02-id3.txt":       {text: "ID3 Solutions GmbH is hiring a Go engineer.\n"},
	"02-mthd.txt":      {text: "FORM xxxxAIFF engineer\n"},
	"02-mz.txt":        {text: "MZ Labs hires Go engineers\n"},
	"02-oggs.txt":      {reason: "the text contains NUL characters: save it as plain text in UTF-8"},
	"02-pdfword.txt":   {text: "%PDF-generation engineer wanted\n"},
	"02-pk.txt":        {text: "PK is hiring\n"},
	"02-ps.txt":        {text: "%!PS-Adobe skills: Go\n"},
	"02-rar.txt":       {text: "Rar! We need a Go engineer\n"},
	"02-snd.txt":       {text: ".snd\n"},
	"02-vt.txt":        {text: "Go engineer\vRedis and Temporal\n"},
	"02-wOFF.txt":      {text: "wOFF fonts engineer\n"},
	"02-x1f.txt":       {text: "name\x1fskill\x1fGo\n"},

	"03-bom-prefix.pdf":  {text: "Go engineer with Redis"},
	"03-junk-prefix.pdf": {text: "Go engineer with Redis"},
	"03-plain.pdf":       {text: "Go engineer with Redis"},
	"03-cjk.pdf":         {text: "负责后端微服务的工程师"},
	"03-japanese.pdf":    {text: "エンジニア"},

	"04-orient6.jpg": {size: "200x400"},
	"04-orient6.png": {size: "200x400"},
	"04-plain.jpg":   {size: "400x200"},
	"04-plain.png":   {size: "400x200"},
	"04-plain.webp":  {size: "400x200"},

	"05-badcrc-idat.png":  {reason: "the PNG image is damaged, its part IDAT has a wrong checksum: save it or copy it again"},
	"05-badcrc-text.png":  {size: "400x200"},
	"05-goodcrc-text.png": {size: "400x200"},
	"05-noiend.png":       {size: "400x200"},
	"05-cmyk.jpg":         {size: "400x200"},
	"05-cut2.jpg":         {size: "400x200"},
	"05-cut200.jpg":       {reason: "the JPEG image is incomplete, its end is missing: save it or copy it again"},
	"05-progressive.jpg":  {size: "400x200"},
	"05-trailing.jpg":     {size: "400x200"},

	"06-avif.avif":       {reason: "the file is an AVIF image, which is not supported: save it as JPEG or PNG"},
	"06-heic.heic":       {reason: "the file is a HEIC image, which is not supported: save it as JPEG or PNG"},
	"06-lossless.webp":   {size: "400x200"},
	"06-plain.gif":       {reason: "the file is a GIF image, which is not supported: save it as JPEG or PNG"},
	"06-two-frames.webp": {reason: "the file is an animated WebP image, which is not supported: save one of its frames as JPEG or PNG"},

	"07-big5.txt":                {text: "資深工程師\n"},
	"07-gb18030.txt":             {text: "高级 Go 工程师，熟悉 Redis 与 Temporal，五年经验。\n"},
	"07-latin1.txt":              {text: "Ingénieur Go à Zürich\n"},
	"07-shiftjis.txt":            {text: "エンジニア\n"},
	"07-utf16-bom.txt":           {text: "高级 Go 工程师，熟悉 Redis 与 Temporal，五年经验。\n"},
	"07-utf16le-ascii-nobom.txt": {text: "Go engineer\n"},
	"07-utf16le-nobom.txt":       {text: "高级 Go 工程师，熟悉 Redis 与 Temporal，五年经验。\n"},

	"08-fragment.html":          {text: "Go engineer"},
	"08-odt-ish.doc":            {reason: "the file is an Office 97-2003 file, which is not supported: save it as DOCX or PDF"},
	"08-posting-nodoctype.html": {text: "Go engineer"},
	"08-posting.html":           {text: "Go engineer\nRedis & Temporal"},
	"08-resume.rtf":             {reason: "the file is an RTF document, which is not supported: save it as DOCX or PDF"},
	"08-xml.xml":                {text: "Go engineer"},

	"09-1080x19999.png": {size: "1080x19999"},
	"09-1080x24000.png": {reason: "the image is 24000 pixels high; at most 20000 are read: scale it down, or upload a part of it"},
}

// corpus returns the files of the corpus. The largest are made here.
func corpus(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"09-1080x19999.png": pngOf(t, 1080, 19_999), "09-1080x24000.png": pngOf(t, 1080, 24_000)}
	entries, err := os.ReadDir("testdata/uploads")
	require.NoError(t, err)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join("testdata/uploads", e.Name()))
		require.NoError(t, err)
		files[e.Name()] = content
	}
	return files
}

func TestUploadAsset_Corpus_RightTextOrNamedReason(t *testing.T) { // P22, FU1, FU2, FU3
	t.Parallel()
	h := newHarness(t)
	files := corpus(t)
	require.Len(t, uploads, len(files), "every file is in the table")
	for name, want := range uploads {
		require.Contains(t, files, name)
		a := h.upload("alice", name, files[name])
		if want.reason != "" {
			require.Equal(t, want.reason, a.problem.Detail, name)
			require.Equal(t, "file", a.problem.Field, name)
			continue
		}
		require.Equal(t, http.StatusCreated, a.status, "%s: %s", name, a.body)
		content := h.call(http.MethodGet, "/v1/assets/"+a.json(t)["assetId"].(string), h.token("alice"), nil).body
		if want.size == "" {
			require.Equal(t, want.text, string(content), name)
			continue
		}
		img, _, err := image.Decode(bytes.NewReader(content))
		require.NoError(t, err, name)
		require.Equal(t, want.size, strings.NewReplacer("(", "", ")", "", ",", "x").Replace(img.Bounds().Size().String()), name)
	}
}

// markup is what the sources of documents contain, and their texts do not.
var markup = []string{"%PDF-1", "endobj", "PK\x03\x04", `{\rtf`, "<html", "<p>", "<div", "<?xml", "<script", "JFIF", "IHDR", "ftyp", "\x00"}

func TestUploadAsset_CorpusMutated_NeverTheSourceOfADocument(t *testing.T) { // P22
	t.Parallel()
	h := newHarness(t)
	rng := rand.New(rand.NewPCG(22, 30)) //nolint:gosec // the same variants in each run
	all := corpus(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		whole := all[name]
		if len(whole) > 20_000 || strings.HasPrefix(name, "02-") {
			continue // texts are what they are
		}
		for range 6 {
			content := mutate(rng, whole)
			a := h.upload("alice", name, content)
			require.Contains(t, []int{201, 400, 413, 415}, a.status, "%s %q: %s", name, content, a.body)
			if a.status != http.StatusCreated {
				require.NotEmpty(t, a.problem.Detail, name)
				continue
			}
			if a.json(t)["kind"] != "text" {
				continue
			}
			text := string(h.call(http.MethodGet, "/v1/assets/"+a.json(t)["assetId"].(string), h.token("alice"), nil).body)
			for _, m := range markup {
				require.NotContains(t, text, m, "%s %q", name, content)
			}
		}
	}
}

// mutate cuts a file off behind its beginning, or changes bytes behind it, or adds some.
func mutate(rng *rand.Rand, whole []byte) []byte {
	const beginning = 16
	content := bytes.Clone(whole)
	if len(content) <= beginning {
		return append(content, whole...)
	}
	at := func() int { return beginning + rng.IntN(len(content)-beginning) }
	switch rng.IntN(3) {
	case 0:
		return content[:at()]
	case 1:
		for range 1 + rng.IntN(4) {
			content[at()] = byte(rng.IntN(256)) //nolint:gosec // it is below 256
		}
		return content
	}
	return append(content, make([]byte, rng.IntN(100))...)
}
