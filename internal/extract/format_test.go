package extract

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDetect_BinaryFormat_IsRefusedByName(t *testing.T) { // FU1
	t.Parallel()
	for _, m := range marks {
		content := append(make([]byte, m.offset), strings.ReplaceAll(m.magic, "?", "\x01")...)
		content = append(content, 0, 0, 1, 0, 0xff, 0xfe)
		_, err := read(content, 1000)
		require.ErrorContains(t, err, "the file is ", "%q", m.magic)
		require.ErrorContains(t, err, ", which is not supported: ", "%q", m.magic)
	}
	for content, want := range map[string]string{
		"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic":                             "a HEIC image",
		"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1heicmiaf":                         "a HEIC image",
		"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1avif":                             "an AVIF image",
		"\x00\x00\x00\x18ftypavis\x00\x00\x00\x00avifmif1":                             "an animated AVIF image",
		"\x00\x00\x00\x18ftypM4A \x00\x00\x00\x00M4A isom":                             "MPEG-4 audio",
		"\x00\x00\x00\x14ftypqt  \x00\x00\x00\x00qt  ":                                 "a QuickTime video",
		"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isommp41":                             "an MPEG-4 video",
		"RIFF\x04\x00\x00\x00WAVEfmt ":                                                 "WAV audio",
		compoundOf("WordDocument"):                                                     "a Word 97-2003 document",
		compoundOf("Workbook"):                                                         "an Excel 97-2003 workbook",
		compoundOf("PowerPoint Document"):                                              "a PowerPoint 97-2003 presentation",
		compoundOf("__properties_version1.0"):                                          "an Outlook message",
		compoundOf("other"):                                                            "an Office 97-2003 file",
		string(parts(t, "xl/workbook.xml", "x")):                                       "an Excel workbook",
		string(parts(t, "ppt/presentation.xml", "x")):                                  "a PowerPoint presentation",
		string(parts(t, "mimetype", "application/epub+zip")):                           "an EPUB book",
		string(parts(t, "Index/Document.iwa", "x")):                                    "a document of Apple Pages, Numbers or Keynote",
		string(parts(t, "a.txt", "x")):                                                 "a ZIP archive",
		string(parts(t, "mimetype", "application/vnd.oasis.opendocument.spreadsheet")): "an OpenDocument spreadsheet",
		"{\\rtf\\ansi\\deff0 Go}\n":                                                    "an RTF document",
		"{\\rtf1\\ansi{\\fonttbl{\\f0 A;}}\\{Go":                                       "an RTF document",
		"{\\rtf1\n\\ansi Go}\r\n\x00":                                                  "an RTF document",
		"{\\rtf1 Go\\par}":                                                             "an RTF document",
		"{\\rtf1{\\info{\\title x}}Go}":                                                "an RTF document",
		`{\rtf1\ansi Go}`:                                                              "an RTF document",
		"%!PS-Adobe-3.0\n%%Title: Go\n":                                                "a PostScript document",
		`<svg xmlns="http://www.w3.org/2000/svg"><text>Go</text></svg>`:                "an SVG image",
		`<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd"><svg width="1"/>`: "an SVG image",
		`<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY ns "http://x">]><svg xmlns="&ns;"/>`:                                                        "an SVG image",
		"data:application/pdf;base64,JVBERi0xLjQK": "a data URL",
	} {
		_, err := read([]byte(content), 1000)
		require.ErrorContains(t, err, "the file is "+want+", which is not supported: ", "%q", content[:min(len(content), 60)])
	}
	_, err := read([]byte(compoundOf("EncryptedPackage")), 1000)
	require.ErrorIs(t, err, ErrEncrypted)
}

// compoundOf returns the beginning of a compound file with the name of a stream.
func compoundOf(stream string) string {
	out := "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + strings.Repeat("\x00", 504)
	for _, r := range stream {
		out += string(r) + "\x00"
	}
	return out
}

func TestDetect_TextBeginsLikeABinaryFormat_IsText(t *testing.T) { // FU1
	t.Parallel()
	texts := []string{
		"%PDF-generation engineer wanted", "PDF 1.7: %PDF-1.7 is a header", "%PDF-1.7 is the version that we write", "PK is hiring", "Rar! We need you",
		"BM Labs", "ftypheic", "<T> is a type parameter", "a < b", "<- left", "<3 Go", "#!/bin/sh\necho hi", `{"a": 1}`, "Note: a\nTo: b\n\nhi",
		"Page one\fPage two\v\x1b[1m\a", "Name\x1fGo", "\\documentclass{article}", "<?php echo 1;", "<!-- a note --> text", "%!PS-Adobe skills",
		"{\\rtf is how an RTF file begins. I wrote converters for it.\nSecond line.\n", "{\\rtf1 begins RTF files", "{\\rtf1} and {\\b bold} are RTF", "{\\rtfs}",
		"<?xml is how every config of mine begins.\nI wrote many.\n", "<?xml?> begins XML", "<?xml version = nothing", "<?xml-stylesheet is an instruction",
		"data: Go", "From: me\nSubject: you\n\nhello", "# Title\n\n<b>bold</b>", "---\ntitle: x\n---", "\"a\";\"b\"\r\n1;2",
	}
	for _, m := range marks {
		letters, _, _ := strings.Cut(m.magic, "?")
		if end := strings.IndexFunc(letters, func(r rune) bool { return r < ' ' || r > '~' }); end >= 0 {
			letters = letters[:end]
		}
		if m.offset == 0 && letters != "" {
			texts = append(texts, letters+" engineer wanted", letters)
		}
	}
	for _, text := range texts {
		out, err := read([]byte(text), 1000)
		require.NoError(t, err, "%q", text)
		require.Equal(t, text, out)
		out, err = read([]byte("\xef\xbb\xbf"+text), 1000)
		require.NoError(t, err, "%q", text)
		require.Equal(t, text, out)
	}
}

func TestDetect_PDF_HeaderWithinFirst1024Bytes(t *testing.T) { // FU1
	t.Parallel()
	body := "1 0 obj\n<<>>\nendobj\nstartxref\n0\n%%EOF"
	for name, content := range map[string]string{
		"at the beginning":   "%PDF-1.4\n" + body,
		"a mark before it":   "\xef\xbb\xbf%PDF-1.4\n" + body,
		"white space":        "\r\n \t%PDF-2.0\r" + body,
		"headers before it":  "--boundary\r\nContent-Type: application/pdf\r\n\r\n%PDF-1.4\n" + body,
		"binary junk":        "\x00\x01\xff" + strings.Repeat("\x80", 1000) + "%PDF-1.4\n" + body,
		"at the last byte":   strings.Repeat("x", 1016) + "%PDF-1.4\n" + body,
		"the header only":    "%PDF-1.4",
		"its beginning only": "%PDF-1.4\n%\xe2\xe3",
		"on one line":        "%PDF-1.4 1 0 obj",
	} {
		require.True(t, Detect([]byte(content), "").pdf, name)
	}
	for name, content := range map[string]string{
		"behind 1,024 bytes": strings.Repeat("x", 1025) + "%PDF-1.4\n" + body,
		"only mentioned":     "The header is %PDF-1.4 and the body has 1 0 obj",
		"a ZIP with a PDF":   string(parts(t, "a.txt", "%PDF-1.4\n"+body)),
	} {
		require.False(t, Detect([]byte(content), "").pdf, name)
	}
}

func TestText_HTML_ShownTextIsRead(t *testing.T) { // FU1
	t.Parallel()
	for name, c := range map[string]struct{ page, want string }{
		"a page":               {"<!DOCTYPE html><html><head><title>Job</title><style>p{}</style><script>alert(1)</script></head><body><p>Go <b>eng</b>ineer</p><p>R&eacute;dis &amp; T&nbsp;x &#x4e2d;</p></body></html>", "Go engineer\nRédis & T x 中"},
		"white space before":   {"\n \t<!-- saved --><HTML><BODY>Go\n  engineer</BODY></HTML>", "Go engineer"},
		"XHTML":                {`<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x"><html xmlns="http://www.w3.org/1999/xhtml"><body><p>Go</p></body></html>`, "Go"},
		"implied ends":         {"<html><head><meta charset=utf-8><body><ul><li>Go<li>Redis</ul>end", "Go\nRedis\nend"},
		"a fragment":           {"<div>Go engineer</div>", "Go engineer"},
		"lines and tags":       {"<p align=\"center\"><img src=x></p>\n\n# Title\n\n- Go\n- Redis", "# Title\n\n- Go\n- Redis"},
		"a table":              {"<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td> 2 </td></tr></table>", "a\tb\n1\t2"},
		"hidden elements":      {"<body><div hidden>x<div>y</div></div><span style='color:red; display: none'>z</span><noscript>enable</noscript><template><p>t</p></template>Go", "Go"},
		"hidden by any tag":    {"<body><p hidden>H</p><p style='visibility: hidden'>H</p><h1 style='display:none'>H</h1>Go<input hidden></body>", "Go"},
		"hidden, no end":       {"<ul><li hidden>H<ul><li>H</ul><li>a</ul><p hidden>H<p>b<div><p hidden>H</div>c<div><li hidden>H</div>d", "a\nb\nc\nd"},
		"preformatted":         {"<body><pre>a\n  b</pre>c", "a\n  b\nc"},
		"line breaks":          {"<p>a<br>b<br/>c", "a\nb\nc"},
		"a style's last value": {"<body><p style='display:none;display:block'>a</p><p style='display:block;display:none'>H</p><p style='display:inline flow-root'>b", "a\nb"},
		"an important style":   {"<body><p style='display:none !important; display:block'>H</p><p style='display:block ! IMPORTANT;display:none'>a</p><p style='display:block!important;display:none!important'>H</p>b", "a\nb"},
		"an invalid style":     {"<body><p style='display:none junk'>a</p><p style='display:none;display:nonsense'>H</p><p style='display none'>b</p><p style='display:'>c</p><p style=';;: ;display:none;'>H</p>d", "a\nb\nc\nd"},
		"strings in a style":   {"<body><p style=\"content:'display:none'\">a</p><p style=\"content:';display:none;'\">b</p><p style=\"content:'\\';display:none\">c</p><p style=\"content:'x';display:none\">H</p>d", "a\nb\nc\nd"},
		"addresses in a style": {"<body><p style='background:url(x;display:none)'>a</p><p style='background:url(data:image/png;base64,x);display:none'>H</p><p style=\"background:url( 'x)';display:none)\">b</p><p style=\"background:url(it's);display:none\">H</p>c", "a\nb\nc"},
		"comments in a style":  {"<body><p style='/*display:none*/'>a</p><p style='display:/* ; */none'>H</p><p style='display:no/**/ne'>b</p><p style='/*;display:none'>c", "a\nb\nc"},
		"blocks in a style":    {"<body><p style='x:{display:none;}'>a</p><p style='x:(;[display:none];)'>b</p><p style='x:{y:z};display:none'>H</p>c", "a\nb\nc"},
		"variables in a style": {"<body><p style='--display:none'>a</p><p style='display:var(--x)'>b</p><p style='display:none;display:var(--x,none)'>c</p><p style='x-display:none'>d", "a\nb\nc\nd"},
		"escapes in a style":   {"<body><p style='disp\\6c ay:n\\6f ne'>H</p><p style='display\\:none'>a", "a"},
		"visible in hidden":    {"<body><div style='visibility:hidden'>H<span style='visibility:visible'>a</span>H<p style='visibility:initial'>b<b style='visibility:collapse'>H</b><i style='visibility:inherit'>c</i></p>H</div>d", "a\nb c\nd"},
		"visible in none":      {"<body><div style='display:none'>H<p style='visibility:visible;display:block'>H</p></div>a<div style='content-visibility:hidden'>H<b style='visibility:visible'>H</b></div>", "a"},
		"shown by a style":     {"<body><p hidden style='display:block'>a</p><p hidden style='display:revert'>H</p><p hidden=until-found>H</p><p style='color:red' style='display:none'>b", "a\nb"},
		"dialogs":              {"<body><dialog>H<p>H</dialog><dialog open>a</dialog><dialog style='display:block'>b</dialog>c", "a\nb\nc"},
		"hidden, another end":  {"<body><div><span hidden>H</div>a<div><b style='display:none'>H<i>H</div>b<b><div hidden>H</b>H</div>c<select hidden><option>H</select><p><select hidden><option>H<optgroup>H</select><dl><dt hidden>H<dd>d</dl><table><tr hidden><td>H<tr><td hidden>H<td>e</table><div hidden><table><tr><td>H</div>H</table></div>f<p hidden>H<li>g", "a\nbc\nd\ne\nf\ng"},
		"unclosed script":      {"<p>Go</p><script>if (a < b) {", "Go"},
		"an open tag":          {"<p>Go</p><p", "Go"},
	} {
		out, err := readAs("a.HTM", []byte(c.page), 1000)
		require.NoError(t, err, name)
		require.Equal(t, c.want, out, name)
	}
	for name, page := range map[string]string{
		"a page of scripts": "<html><head><title>App</title></head><body><div id=app></div><script src=x></script></body></html>",
		"a script":          "<script>alert(1)</script>",
		"an image":          "<img src=x onerror=alert(1)>",
	} {
		_, err := readAs("a.HTM", []byte(page), 1000)
		require.EqualError(t, err, "the HTML page contains no text: open it in a browser and save it as PDF", name)
	}
	_, err := readAs("a.HTM", []byte("<p>"+strings.Repeat("x", 1001)), 1000)
	require.ErrorIs(t, err, ErrTooLong)
	out, err := readAs("a.HTM", []byte("<body>"+strings.Repeat("<div>", 200_000)+"Go"), 1000)
	require.NoError(t, err)
	require.Equal(t, "Go", out)
}

func TestText_OpenDocument_VisibleTextIsRead(t *testing.T) { // FU1
	t.Parallel()
	namespaces := ` xmlns:office="` + officeNamespace + `" xmlns:text="` + textNamespace + `" xmlns:svg="` + titleNamespace + `"`
	content := `<office:document-content` + namespaces + `><office:body><office:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>` +
		"<text:h>Go\n  engineer</text:h><text:p>a<text:tab/>b<text:s text:c=\"2\"/>c<text:line-break/>d <text:span>e</text:span> f<svg:desc>photo</svg:desc>" +
		`<office:annotation><text:p>comment</text:p></office:annotation></text:p></office:text></office:body></office:document-content>`
	styles := `<office:document-styles` + namespaces + `><text:p>Zoë</text:p></office:document-styles>`
	document := parts(t, "mimetype", odtType, "styles.xml", styles, "content.xml", content)
	out, err := read(document, 1000)
	require.NoError(t, err)
	require.Equal(t, "Zoë\n\nGo engineer\na\tb  c\nd e f", out)

	_, err = read(parts(t, "mimetype", odtType, "content.xml", "x", "META-INF/manifest.xml", "<manifest:encryption-data/>"), 1000)
	require.ErrorIs(t, err, ErrEncrypted)
	_, err = read(parts(t, "mimetype", odtType, "content.xml", content[:300]), 1000)
	require.ErrorIs(t, err, ErrDamaged)
	_, err = read(parts(t, "mimetype", odtType), 1000)
	require.ErrorIs(t, err, ErrDamaged)
	_, err = read(document, 10)
	require.ErrorIs(t, err, ErrTooLong)
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"<p>a", "<?xml version='1.0'?><a>b</a>", "PK\x03\x04", "MIME-Version: 1.0\n\nx", "\xff\xfea\x00", "%PDF-1.4\n", "\xb8\xdf\xbc\xb6", "\x00\x00\x00\x18ftypheic"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		format := Detect(content, "")
		if format.pdf || format.Image != "" {
			return
		}
		_, _ = readAs("a.html", content, 1000)
		_, _ = readAs("a.eml", content, 1000)
		text, err := read(content, 1000)
		if err == nil {
			require.LessOrEqual(t, len(text), 1000)
			require.False(t, strings.ContainsRune(text, 0))
			require.True(t, bytes.Equal([]byte(text), bytes.ToValidUTF8([]byte(text), nil)))
		}
	})
}
