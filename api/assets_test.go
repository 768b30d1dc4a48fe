package api_test

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/ledger"
)

func pngOf(t *testing.T, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White})))
	return b.Bytes()
}

// bomb is a small PNG that claims to be 10,000 pixels wide and high.
func bomb(t *testing.T) []byte {
	t.Helper()
	b := pngOf(t, 4, 4)
	header := b[12:29] // type, then width, height, ... of the first chunk
	binary.BigEndian.PutUint32(header[4:], 10_000)
	binary.BigEndian.PutUint32(header[8:], 10_000)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(header))
	return b
}

// damaged is a PNG whose pixels are not compressed.
func damaged(t *testing.T) []byte {
	t.Helper()
	b := pngOf(t, 4, 4)
	data := bytes.Index(b, []byte("IDAT"))
	size := int(binary.BigEndian.Uint32(b[data-4:]))
	chunk := []byte("\x00\x00\x00\x04IDATxxxx")
	return slices.Concat(b[:data-4], binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:])), b[data+4+size+4:])
}

// onePixelWebP is a complete, lossless WebP image.
const onePixelWebP = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="

func form(t *testing.T, field, name string, content []byte) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	part, err := w.CreateFormFile(field, name)
	require.NoError(t, err)
	_, err = part.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return body, w.FormDataContentType()
}

func (h *harness) upload(user, name string, content []byte) answer {
	h.t.Helper()
	body, ct := form(h.t, "file", name, content)
	return h.do(h.request(http.MethodPost, "/v1/assets", h.token(user), body, "Content-Type", ct))
}

func TestUploadAsset_EachContent_TypeFromContent(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var jpg, gifs bytes.Buffer
	small := image.NewPaletted(image.Rect(0, 0, 4, 4), color.Palette{color.Black, color.White})
	require.NoError(t, jpeg.Encode(&jpg, small, nil))
	require.NoError(t, gif.Encode(&gifs, small, nil))
	webp, err := base64.StdEncoding.DecodeString(onePixelWebP)
	require.NoError(t, err)
	img := pngOf(t, 4, 4)
	for name, tc := range map[string]struct {
		content []byte
		status  int
		kind    berth.AssetKind
		media   string
	}{
		"png":                         {img, 201, berth.AssetImage, "image/png"},
		"jpeg":                        {jpg.Bytes(), 201, berth.AssetImage, "image/jpeg"},
		"webp":                        {webp, 201, berth.AssetImage, "image/jpeg"},
		"docx":                        {docx(t, "<w:p><w:r><w:t>I write Go.</w:t></w:r></w:p>"), 201, berth.AssetText, "text/plain; charset=utf-8"},
		"docx without text":           {docx(t, "<w:p/>"), 415, "", ""},
		"docx too long":               {docx(t, "<w:p><w:r><w:t>"+strings.Repeat("x", 200_001)+"</w:t></w:r></w:p>"), 413, "", ""},
		"text":                        {[]byte("Zoë 工程师\n"), 201, berth.AssetText, "text/plain; charset=utf-8"},
		"html":                        {[]byte("<html><script>alert(1)</script><p>Go"), 201, berth.AssetText, "text/plain; charset=utf-8"},
		"html without text":           {[]byte("<html><script>alert(1)</script>"), 415, "", ""},
		"svg":                         {[]byte(`<?xml version="1.0"?><svg onload="alert(1)"/>`), 415, "", ""},
		"text with a byte order mark": {[]byte("\xef\xbb\xbfhello"), 201, berth.AssetText, "text/plain; charset=utf-8"},
		"gif":                         {gifs.Bytes(), 415, "", ""},
		"pdf":                         {pdf("I write Go.", ""), 201, berth.AssetText, "text/plain; charset=utf-8"},
		"pdf damaged":                 {[]byte("%PDF-1.7\ntext"), 415, "", ""},
		"pdf without text":            {pdf("", ""), 415, "", ""},
		"pdf with a password":         {pdf("I write Go.", encryption), 415, "", ""},
		"zip":                         {[]byte("PK\x03\x04zip"), 415, "", ""},
		"binary":                      {[]byte{0, 1, 2, 3}, 415, "", ""},
		"utf-16":                      {[]byte("\xff\xfeh\x00i\x00"), 201, berth.AssetText, "text/plain; charset=utf-8"},
		"latin-1":                     {[]byte("Zo\xeb writes it for you"), 201, berth.AssetText, "text/plain; charset=utf-8"},
		"png cut off":                 {img[:20], 415, "", ""},
		"png without its end":         {img[:len(img)-8], 201, berth.AssetImage, "image/png"},
		"png half sent":               {img[:len(img)-20], 415, "", ""},
		"png with damaged pixels":     {damaged(t), 415, "", ""},
		"jpeg with damaged pixels":    {bytes.Replace(jpg.Bytes(), []byte("\xff\xda\x00"), []byte("\xff\xda\x7f"), 1), 415, "", ""},
		"jpeg without its end":        {jpg.Bytes()[:jpg.Len()-2], 201, berth.AssetImage, "image/jpeg"},
		"jpeg half sent":              {jpg.Bytes()[:jpg.Len()-4], 415, "", ""},
		"webp half sent":              {webp[:len(webp)-1], 415, "", ""},
		"png signature only":          {append([]byte("\x89PNG\x0d\x0a\x1a\x0a"), "nothing"...), 415, "", ""},
		"empty":                       {nil, 400, "", ""},
		"blank":                       {[]byte(" \n"), 400, "", ""},
		"without a width":             {[]byte("\u200b\u200d\n"), 400, "", ""},
		"text too long":               {bytes.Repeat([]byte("a"), 200_001), 413, "", ""},
		"over the limit":              {append(bytes.Clone(img), make([]byte, 2<<20)...), 413, "", ""},
		"far over":                    {make([]byte, 20<<20), 413, "", ""},
		"too many pixels":             {bomb(t), 413, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.upload("alice", `C:\dir\..\posting "1".png`, tc.content)
			require.Equal(t, tc.status, a.status, string(a.body))
			if tc.status != http.StatusCreated {
				require.NotEmpty(t, a.problem.Detail)
				require.Equal(t, map[bool]string{true: "body", false: "file"}[name == "far over"], a.problem.Field)
				if name == "binary" {
					require.Contains(t, a.problem.Detail, "image/webp", "the message names the accepted types")
				}
				return
			}
			d := a.json(t)
			require.Equal(t, string(tc.kind), d["kind"])
			require.Equal(t, tc.media, d["mediaType"])
			require.Len(t, d["sha256"], 64)
			require.Equal(t, `posting "1".png`, d["name"])
			require.Equal(t, "assets/"+d["assetId"].(string), a.header.Get("Location"))
			again := h.upload("alice", "other.png", tc.content)
			require.Equal(t, d["assetId"], again.json(t)["assetId"], "the same content is the same asset")
			require.Equal(t, "other.png", again.json(t)["name"])
		})
	}
}

func TestGetAsset_HTMLContent_OwnerOnlyWithSafeHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	html := []byte("Go <script>alert(1)</script>")
	id, _ := h.upload("alice", "x.txt", html).json(t)["assetId"].(string)
	a := h.do(h.request(http.MethodGet, "/v1/assets/"+id, h.token("alice"), nil))
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, html, a.body)
	require.Equal(t, "text/plain; charset=utf-8", a.header.Get("Content-Type"))
	require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	require.Contains(t, a.header.Get("Content-Security-Policy"), "sandbox")
	require.Contains(t, a.header.Get("Content-Disposition"), "attachment")

	img, _ := h.upload("alice", "名.png", pngOf(t, 2, 2)).json(t)["assetId"].(string)
	a = h.do(h.request(http.MethodGet, "/v1/assets/"+img, h.token("alice"), nil))
	require.Equal(t, "image/png", a.header.Get("Content-Type"))
	require.Contains(t, a.header.Get("Content-Disposition"), "inline")

	require.Equal(t, http.StatusNotFound, h.do(h.request(http.MethodGet, "/v1/assets/"+id, h.token("bob"), nil)).status)
	require.Equal(t, http.StatusNotFound, h.do(h.request(http.MethodGet, "/v1/assets/a_none", h.token("alice"), nil)).status)
	require.Equal(t, http.StatusBadRequest, h.do(h.request(http.MethodGet, "/v1/assets/a%2Fb", h.token("alice"), nil)).status)
}

func TestSubmitTask_Refused_StoresNoText(t *testing.T) { // T26, FT11
	t.Parallel()
	h := newHarness(t)
	stored := func(text string) bool {
		_, err := h.ledger.GetAsset(t.Context(), "alice", ledger.AssetID("alice", berth.AssetText, []byte(text)))
		if berth.CodeOf(err) == berth.CodeNotFound {
			return false
		}
		require.NoError(t, err)
		return true
	}
	submitAs := func(key, text string, change ...func(doc)) int {
		return h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(append(change, variable("resume", text))...), "Idempotency-Key", key).status
	}
	submit := func(text string, change ...func(doc)) int { return submitAs("k", text, change...) }
	require.Equal(t, http.StatusAccepted, submit("I write Go."))
	require.True(t, stored("I write Go."))

	require.Equal(t, http.StatusUnprocessableEntity, submit("Another request."))
	require.False(t, stored("Another request."), "the key belongs to another request")
	require.Equal(t, http.StatusBadRequest, submit("No posting.", variable("jobText", " ")))
	require.False(t, stored("No posting."), "another variable is invalid")
	h.redis.Kill()
	require.Equal(t, http.StatusServiceUnavailable, submitAs("new", "No Redis."))
	require.False(t, stored("No Redis."), "nothing is admitted without Redis")
}

func TestSubmitTask_TextsExceedTheModelsContext_FieldNamed(t *testing.T) { // T26, FT19
	t.Parallel()
	h := newHarness(t)
	long := strings.Repeat("字", 66_000) // within the limit of one text
	uploaded := h.upload("alice", "cv.txt", []byte(strings.Repeat("历", 66_600)))
	require.Equal(t, http.StatusCreated, uploaded.status, string(uploaded.body))
	a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(
		variable("jobText", long), variable("notes", long), variable("detailedResume", doc{"assetId": uploaded.json(t)["assetId"]})))
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status, string(a.body))
	require.Equal(t, "variables.detailedResume", a.problem.Field)
	require.Contains(t, a.problem.Detail, "too long for the model ")
	require.Zero(t, h.starter.submits.Load())
	_, err := h.ledger.GetAsset(t.Context(), "alice", ledger.AssetID("alice", berth.AssetText, []byte(long)))
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err), "nothing is stored")
}

// encryption is the dictionary of a file whose password is not known.
var encryption = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <" + strings.Repeat("41", 32) + "> /U <" + strings.Repeat("42", 32) + "> >> /ID [<00> <00>]"

// pdf returns a file with one page. Readers rebuild its missing cross-reference table.
func pdf(text, trailer string) []byte {
	content := fmt.Sprintf("BT /F1 12 Tf 72 700 Td (%s) Tj ET", text)
	return fmt.Appendf(nil, "%%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"+
		"2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>\nendobj\n"+
		"3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>\nendobj\n"+
		"4 0 obj\n<< /Length %d >>\nstream\n%s\nendstream\nendobj\n"+
		"5 0 obj\n<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>\nendobj\n"+
		"trailer\n<< /Root 1 0 R /Size 6 %s >>\n%%%%EOF\n", len(content), content, trailer)
}

// docx returns a file with this body.
func docx(t *testing.T, body string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create("word/document.xml")
	require.NoError(t, err)
	_, err = fmt.Fprintf(w, `<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>%s</w:body></w:document>`, body)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func TestUploadAsset_Document_ItsTextIsStored(t *testing.T) { // T26, FT14
	t.Parallel()
	h := newHarness(t)
	for name, content := range map[string][]byte{"cv.pdf": pdf("I write Go.", ""), "cv.docx": docx(t, "<w:p><w:r><w:t>I write Go.</w:t></w:r></w:p>")} {
		a := h.upload("alice", name, content)
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		got := h.call(http.MethodGet, "/v1/assets/"+a.json(t)["assetId"].(string), h.token("alice"), nil)
		require.Equal(t, "I write Go.", string(got.body), name)
	}
	encrypted := h.upload("alice", "cv.pdf", pdf("I write Go.", encryption))
	require.Equal(t, "the file is protected by a password: remove the protection", encrypted.problem.Detail)
	scanned := h.upload("alice", "cv.pdf", pdf("", ""))
	require.Equal(t, "the file contains no text: upload scanned pages as images", scanned.problem.Detail)

	without := newHarness(t, func(d *api.Deps) { d.Config.PDFToText = "no-such-pdftotext" })
	a := without.upload("alice", "cv.pdf", pdf("I write Go.", ""))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, a.problem.Detail, "pdftotext is not installed")
	require.Contains(t, without.log.String(), "apt-get install poppler-utils")
}

// The type of an upload is that of its content, whatever the form declares.
func TestUploadAsset_DeclaredTypeIsWrong_ContentDecides(t *testing.T) { // FU1
	t.Parallel()
	h := newHarness(t)
	pdf, err := os.ReadFile("testdata/uploads/03-plain.pdf")
	require.NoError(t, err)
	for content, kind := range map[string]string{string(pdf): "text", string(pngOf(t, 4, 4)): "image", "Go engineer": "text"} {
		for _, declared := range []string{"image/jpeg", "text/plain", "application/pdf", "nonsense"} {
			body := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"cv.jpg\"\r\nContent-Type: " + declared + "\r\n\r\n" + content + "\r\n--b--\r\n"
			a := h.do(h.request(http.MethodPost, "/v1/assets", h.token("alice"), strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=b"))
			require.Equal(t, http.StatusCreated, a.status, "%s: %s", declared, a.body)
			require.Equal(t, kind, a.json(t)["kind"], declared)
		}
	}
}
