package extract

import (
	"archive/zip"
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func file(t *testing.T, name, content string) []byte {
	t.Helper()
	return parts(t, name, content)
}

const start = `<w:document xmlns:w="` + wordNamespace + `" xmlns:m="urn:math"><w:body>`

// parts returns a ZIP archive with these entries, in order.
func parts(t *testing.T, entries ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.Create(entries[i])
		require.NoError(t, err)
		_, err = w.Write([]byte(entries[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return out.Bytes()
}

// read returns the text of a document that needs no program.
func read(content []byte, limit int) (string, error) { return readAs("", content, limit) }

// readAs reads a file with a name.
func readAs(name string, content []byte, limit int) (string, error) {
	return new(Reader).Text(context.Background(), Detect(content, name), content, limit)
}

func TestDOCX_Document_VisibleTextIsRead(t *testing.T) { // FT14
	t.Parallel()
	body := `<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t xml:space="preserve">Zoë </w:t></w:r><w:r><w:t>writes &amp; tests</w:t><w:tab/><w:t>Go</w:t></w:r></w:p>` +
		`<w:p/><w:p/><w:p><w:r><w:t>负责</w:t><w:br/><w:t>微服务</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r><m:t>x</m:t></w:p></w:body></w:document>`
	content := file(t, defaultPart, start+body)
	text, err := read(content, 1000)
	require.NoError(t, err)
	require.Equal(t, "Zoë writes & tests\tGo\n\n负责\n微服务", text)
}

func TestDOCX_HostileFile_IsRefused(t *testing.T) { // FT14
	t.Parallel()
	entities := `<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>` + start + `<w:p><w:r><w:t>&b;</w:t></w:r></w:p></w:body></w:document>`
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"no zip":       {[]byte("PK\x03\x04"), ErrDamaged},
		"another zip":  {file(t, "a.txt", "x"), unsupported("a ZIP archive", unpack)},
		"no XML":       {file(t, defaultPart, "<w:p>"), ErrDamaged},
		"cut off":      {file(t, defaultPart, start+"<w:p><w:r><w:t>text"), ErrDamaged},
		"entities":     {file(t, defaultPart, entities), ErrDamaged},
		"no text":      {file(t, defaultPart, start+"<w:p/></w:body></w:document>"), ErrNoText},
		"long text":    {file(t, defaultPart, start+"<w:p><w:r><w:t>"+strings.Repeat("x", 1001)), ErrTooLong},
		"a zip bomb":   {file(t, defaultPart, start+strings.Repeat("<w:p></w:p>", maxXML/10)), ErrTooLong},
		"many breaks":  {file(t, defaultPart, start+"<w:r>"+strings.Repeat("<w:br/>", 2000)), ErrTooLong},
		"many parts":   {parts(t, defaultPart, start+"<w:p/></w:body></w:document>", "word/header1.xml", "<a>"+strings.Repeat(" ", maxXML/2)+"</a>", "word/header2.xml", "<a>"+strings.Repeat(" ", maxXML/2)+"</a>"), ErrTooLong},
		"a huge token": {file(t, defaultPart, start+"<w:p a='"+strings.Repeat(" ", maxXML)), ErrTooLong},
	} {
		_, err := read(c.content, 1000)
		require.ErrorIs(t, err, c.want, name)
	}
}

// wordFile returns a DOCX file with this body and other parts.
func wordFile(t *testing.T, body string, others ...string) []byte {
	t.Helper()
	return parts(t, append([]string{defaultPart, start + body + "</w:body></w:document>"}, others...)...)
}

func p(text string) string { return "<w:p><w:r><w:t>" + text + "</w:t></w:r></w:p>" }

func TestDOCX_EachFeature_TextIsWholeAndOnce(t *testing.T) { // FU1
	t.Parallel()
	header := `<w:hdr xmlns:w="` + wordNamespace + `">` + p("Zoë, zoe@example.org") + `</w:hdr>`
	textBox := `<w:p><w:r><w:t>Before</w:t></w:r><w:r><mc:AlternateContent xmlns:mc="` + alternateNamespace + `"><mc:Choice><w:txbxContent>` + p("Box") +
		`</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent>` + p("Box") + `</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>`
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"a table":          {wordFile(t, "<w:tbl><w:tr><w:tc>"+p("Go")+"</w:tc><w:tc>"+p("5 years")+"</w:tc></w:tr></w:tbl>"), "Go\n5 years"},
		"a text box":       {wordFile(t, textBox), "Before\nBox"},
		"moved text":       {wordFile(t, "<w:p><w:moveFrom><w:r><w:t>Moved</w:t></w:r></w:moveFrom></w:p><w:p><w:moveTo><w:r><w:t>Moved</w:t></w:r></w:moveTo></w:p>"), "Moved"},
		"tracked changes":  {wordFile(t, "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>"), "new"},
		"hidden text":      {wordFile(t, "<w:p><w:r><w:rPr><w:b/><w:vanish/></w:rPr><w:t>hidden</w:t></w:r><w:r><w:t>shown</w:t></w:r></w:p>"), "shown"},
		"not hidden text":  {wordFile(t, `<w:p><w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>shown</w:t></w:r></w:p>`), "shown"},
		"headers":          {wordFile(t, p("Go"), "word/header1.xml", header, "word/header2.xml", header), "Zoë, zoe@example.org\n\nGo"},
		"notes":            {wordFile(t, p("Go"), "word/footnotes.xml", `<w:footnotes xmlns:w="`+wordNamespace+`"><w:footnote>`+p("since 2012")+`</w:footnote></w:footnotes>`), "Go\n\nsince 2012"},
		"hyphens":          {wordFile(t, "<w:p><w:r><w:t>full</w:t><w:noBreakHyphen/><w:t>time</w:t></w:r></w:p>"), "full-time"},
		"a formula":        {wordFile(t, `<w:p><m:t xmlns:m="`+mathNamespace+`">x</m:t></w:p>`), "x"},
		"a named part":     {parts(t, "_rels/.rels", `<Relationships xmlns="urn:r"><Relationship Type="urn:t/officeDocument" Target="/word/document2.xml"/></Relationships>`, "word/document2.xml", start+p("Go")+"</w:body></w:document>"), "Go"},
		"a Windows path":   {parts(t, `word\document.xml`, start+p("Go")+"</w:body></w:document>"), "Go"},
		"the strict form":  {file(t, defaultPart, `<w:document xmlns:w="`+strictNamespace+`">`+p("Go")+`</w:document>`), "Go"},
		"one XML file":     {[]byte(`<?xml version="1.0"?><pkg:package xmlns:pkg="` + packageNamespace + `"><pkg:part><pkg:xmlData>` + start + p("Go") + `</w:body></w:document></pkg:xmlData></pkg:part><pkg:part><pkg:binaryData>AAAA</pkg:binaryData></pkg:part></pkg:package>`), "Go"},
		"Word 2003 in XML": {[]byte(`<?xml version="1.0" encoding="UTF-8"?><w:wordDocument xmlns:w="` + word2003Namespace + `">` + p("Go") + `<w:binData>AAAA</w:binData></w:wordDocument>`), "Go"},
	} {
		text, err := read(c.content, 1000)
		require.NoError(t, err, name)
		require.Equal(t, c.want, text, name)
	}
}
