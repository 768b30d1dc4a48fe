package extract

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func file(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create(name)
	require.NoError(t, err)
	_, err = w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

const start = `<w:document xmlns:w="` + wordNamespace + `" xmlns:m="urn:math"><w:body>`

func TestDOCX_Document_VisibleTextIsRead(t *testing.T) { // FT14
	t.Parallel()
	body := `<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t xml:space="preserve">Zoë </w:t></w:r><w:r><w:t>writes &amp; tests</w:t><w:tab/><w:t>Go</w:t></w:r></w:p>` +
		`<w:p/><w:p/><w:p><w:r><w:t>负责</w:t><w:br/><w:t>微服务</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r><m:t>x</m:t></w:p></w:body></w:document>`
	content := file(t, documentPart, start+body)
	require.True(t, IsDOCX(content))
	text, err := DOCX(content, 1000)
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
		"another zip":  {file(t, "a.txt", "x"), ErrDamaged},
		"no XML":       {file(t, documentPart, "<w:p>"), ErrDamaged},
		"cut off":      {file(t, documentPart, start+"<w:p><w:r><w:t>text"), ErrDamaged},
		"entities":     {file(t, documentPart, entities), ErrDamaged},
		"no text":      {file(t, documentPart, start+"<w:p/></w:body></w:document>"), ErrNoText},
		"long text":    {file(t, documentPart, start+"<w:p><w:r><w:t>"+strings.Repeat("x", 1001)), ErrTooLong},
		"a zip bomb":   {file(t, documentPart, start+strings.Repeat("<w:p></w:p>", maxXML/10)), ErrTooLong},
		"many breaks":  {file(t, documentPart, start+"<w:r>"+strings.Repeat("<w:br/>", 2000)), ErrTooLong},
		"a huge token": {file(t, documentPart, start+"<w:p a='"+strings.Repeat(" ", maxXML)), ErrTooLong},
	} {
		_, err := DOCX(c.content, 1000)
		require.ErrorIs(t, err, c.want, name)
	}
	require.False(t, IsDOCX(file(t, "a.txt", "x")))
}
