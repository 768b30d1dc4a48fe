package extract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText_XML_CharacterDataIsRead(t *testing.T) { // FU1
	t.Parallel()
	flat := `<office:document xmlns:office="` + officeNamespace + `" xmlns:text="` + textNamespace + `"><office:body><office:text><text:p>Go</text:p><office:binary-data>AAAA</office:binary-data></office:text></office:body></office:document>`
	for name, c := range map[string]struct{ document, want string }{
		"elements":          {`<?xml version="1.0"?><job><title>Go engineer</title><place>Zürich</place></job>`, "Go engineer\nZürich"},
		"inline elements":   {`<?xml version="1.0"?><para>Go <em>eng</em>ineer &amp; <b>more</b></para>`, "Go engineer & more"},
		"no declaration":    {"<job>\n  <title>Go</title>\n  <x/>\n  <place>Z&eacute;</place>\n</job>", "Go\nZé"},
		"CDATA":             {`<?xml version="1.0"?><a><![CDATA[Go < Rust]]></a>`, "Go < Rust"},
		"flat OpenDocument": {`<?xml version="1.0" encoding="UTF-8"?>` + flat, "Go"},
	} {
		out, err := read([]byte(c.document), 1000)
		require.NoError(t, err, name)
		require.Equal(t, c.want, out, name)
	}
	for name, c := range map[string]struct{ document, want string }{
		"no text":     {`<?xml version="1.0"?><a b="c"/>`, "the XML document contains no text: upload its content as text"},
		"damaged":     {`<?xml version="1.0"?><a>text`, "the file is damaged or incomplete"},
		"not closed":  {"<?xml version='1.0'?><a>\n<b></a>", "the XML document is not well-formed in line 2 (element <b> closed by </a>): correct it"},
		"two":         {`<?xml version="1.0"?><a b=1/>`, "the XML document is not well-formed in line 1 ("},
		"a long text": {`<?xml version="1.0"?><a>` + strings.Repeat("x", 1001), "the text of the file is too long"},
	} {
		_, err := read([]byte(c.document), 1000)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestText_XMLEntities_TextIsReadWithinBounds(t *testing.T) { // FU1
	t.Parallel()
	document := func(declarations, content string) string {
		return `<?xml version="1.0"?><!DOCTYPE a [` + declarations + `]><a>` + content + `</a>`
	}
	laughs := `<!ENTITY l0 "lol">`
	for i := 1; i < 12; i++ {
		laughs += "<!ENTITY l" + string(rune('a'+i)) + ` "` + strings.Repeat("&l"+string(rune('a'+i-1))+";", 10) + `">`
	}
	laughs = strings.Replace(laughs, "&la;", "&l0;", 10)
	for name, c := range map[string]struct{ document, want string }{
		"an entity":                {document(`<!ENTITY co "Acme">`, `at &co;.`), "at Acme."},
		"single quotes":            {document(`<!ENTITY co 'A "B" C'>`, `&co;`), `A "B" C`},
		"in an entity":             {document(`<!ENTITY co "Acme"><!ENTITY at "at &co; AG">`, `&at;`), "at Acme AG"},
		"declared later":           {document(`<!ENTITY at "at &co; AG"><!ENTITY co "Acme">`, `&at;`), "at Acme AG"},
		"characters":               {document(`<!ENTITY co "Z&#xfc;rich &#38;#60; &#38; &lt;">`, `&co;`), "Zürich < & <"},
		"elements":                 {document(`<!ENTITY co "<b>Acme</b> &amp; Co">`, `&co;`), "Acme & Co"},
		"with a comment":           {document(`<!-- <!ENTITY co "no"> --><!ENTITY co "Acme">`, `&co;`), "Acme"},
		"twice":                    {document(`<!ENTITY co "Acme"><!ENTITY co "no">`, `&co;`), "Acme"},
		"other declarations":       {document(`<!ELEMENT a (#PCDATA)><!ATTLIST a b CDATA "c"><!ENTITY co "Acme"><!ENTITY % p "x">`, `&co;`), "Acme"},
		"no use":                   {document(`<!ENTITY x SYSTEM "file:///etc/passwd">`, `Go`), "Go"},
		"of HTML":                  {document(`<!ENTITY co "Acme">`, `&eacute;&co;`), "éAcme"},
		"no declaration of XML":    {`<!DOCTYPE a [<!ENTITY co "Acme">]><a b="c">&co;</a>`, "Acme"},
		"with a declared standard": {`<?xml version="1.0"?><!DOCTYPE a SYSTEM "a.dtd" [<!ENTITY co "Acme">]><a>&co;</a>`, "Acme"},
	} {
		out, err := read([]byte(c.document), 1000)
		require.NoError(t, err, name)
		require.Equal(t, c.want, out, name)
	}
	for name, c := range map[string]struct{ document, want string }{
		"another file":      {document(`<!ENTITY x SYSTEM "file:///etc/passwd">`, `&x;`), "the XML document uses the entity &x;, which is in another file: upload its content as text"},
		"another server":    {document(`<!ENTITY x PUBLIC "p" "http://example.org/x">`, `&x;`), "the XML document uses the entity &x;, which is in another file"},
		"not declared":      {document(``, `&x;`), "the XML document uses the entity &x; and does not declare it: upload its content as text"},
		"itself":            {document(`<!ENTITY x "&x;">`, `&x;`), "entities within entities without end"},
		"each other":        {document(`<!ENTITY x "&y;"><!ENTITY y "&x;">`, `&x;`), "entities within entities without end"},
		"a billion laughs":  {document(laughs, `&ll;`), "the file is too complex"},
		"quadratic":         {document(`<!ENTITY x "`+strings.Repeat("x", 900)+`">`, strings.Repeat("&x;", 1000)), "the text of the file is too long"},
		"not well-formed":   {document(`<!ENTITY x "<b>">`, `&x;`), "declares the entity &x; in a way that cannot be read"},
		"an ampersand":      {`<?xml version="1.0"?><a>R & D</a>`, "the XML document is not well-formed in line 1 (invalid character entity & (no semicolon))"},
		"of another entity": {document(`<!ENTITY x SYSTEM "x"><!ENTITY y "&x;">`, `&y;`), "the entity &y;, which is in another file"},
	} {
		out, err := read([]byte(c.document), 1000)
		require.ErrorContains(t, err, c.want, "%s %q", name, out)
	}
}
