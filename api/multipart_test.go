package api_test

import (
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func boundary(t *testing.T, contentType string) string {
	t.Helper()
	_, params, err := mime.ParseMediaType(contentType)
	require.NoError(t, err)
	return params["boundary"]
}

func TestUploadAsset_InvalidForm_Rejected(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	good, ct := form(t, "file", "a.txt", []byte("hello"))
	other, otherCT := form(t, "photo", "a.txt", []byte("hello"))
	twice := strings.Replace(good.String(), "--"+boundary(t, ct)+"--", good.String(), 1)
	for name, tc := range map[string]struct {
		body, ct string
		status   int
	}{
		"two files":       {twice, ct, 400},
		"not a form":      {"hello", "text/plain", 415},
		"no content type": {"hello", "", 415},
		"no boundary":     {"hello", "multipart/form-data", 400},
		"no part":         {"--x--\r\n", "multipart/form-data; boundary=x", 400},
		"other part name": {other.String(), otherCT, 400},
		"cut off":         {good.String()[:good.Len()-20], ct, 400},
		"garbage":         {strings.Repeat("garbage\r\n", 100), ct, 400},
		"huge headers":    {"--x\r\nA: " + strings.Repeat("b", 1<<20) + "\r\n\r\n", "multipart/form-data; boundary=x", 413},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.do(h.request(http.MethodPost, "/v1/assets", h.token("alice"), strings.NewReader(tc.body), "Content-Type", tc.ct))
			require.GreaterOrEqual(t, a.status, 400, string(a.body))
			require.Less(t, a.status, 500, string(a.body))
			require.NotEmpty(t, a.problem.Detail)
			require.Equal(t, map[bool]string{true: "Content-Type", false: "file"}[strings.HasPrefix(tc.body, "hello") && tc.status == 415], a.problem.Field)
			if tc.status != 413 {
				require.Equal(t, tc.status, a.status, string(a.body))
			}
		})
	}
}

func TestUploadAsset_FormDeviates_IsRead(t *testing.T) { // FU3
	t.Parallel()
	h := newHarness(t)
	const plain = `multipart/form-data; boundary=x`
	part := func(disposition, more string) string {
		return "--x\r\nContent-Disposition: " + disposition + "\r\n" + more + "\r\nhello\r\n--x--\r\n"
	}
	for name, tc := range map[string]struct{ body, ct, want string }{
		"a file name without quotes":   {part(`form-data; name="file"; filename=my file.txt`, ""), plain, "my file.txt"},
		"a name without quotes":        {part(`form-data; name=file; filename=a.txt`, ""), plain, "a.txt"},
		"no quotes, other characters":  {part(`form-data; name=file; filename=简历 (1).txt`, ""), plain, "简历 (1).txt"},
		"quotes in a file name":        {part(`form-data; name="file"; filename="my "best" cv.txt"`, ""), plain, `my "best" cv.txt`},
		"a quote as of browsers":       {part(`form-data; name="file"; filename="my %22best%22 cv 100%.txt"`, ""), plain, `my "best" cv 100%.txt`},
		"an escaped quote":             {part(`form-data; name="file"; filename="my \"best\" cv.txt"`, ""), plain, `my "best" cv.txt`},
		"an encoded file name":         {part(`form-data; name="file"; filename*=UTF-8''%E7%AE%80.txt`, ""), plain, "简.txt"},
		"both file names":              {part(`form-data; name="file"; filename="a.txt"; filename*=UTF-8''%E7%AE%80.txt`, ""), plain, "简.txt"},
		"a file name first":            {part(`form-data; filename="a.txt"; name="file"`, ""), plain, "a.txt"},
		"a file name with a semicolon": {part(`form-data; name="file"; filename="a;b.txt"`, ""), plain, "a;b.txt"},
		"no file name":                 {part(`form-data; name="file"`, ""), plain, ""},
		"an empty file name":           {part(`form-data; name="file"; filename=""`, ""), plain, ""},
		"a parameter twice":            {part(`form-data; name="file"; name="other"; filename="a.txt"`, ""), plain, "a.txt"},
		"single quotes":                {part(`form-data; name='file'; filename='a b.txt'`, ""), plain, "a b.txt"},
		"a trailing semicolon":         {part(`form-data; name="file"; filename="a.txt";`, ""), plain, "a.txt"},
		"a path of Windows":            {part(`form-data; name="file"; filename="C:\dir\a.txt"`, ""), plain, "a.txt"},
		"another content type":         {part(`form-data; name="file"; filename="a.txt"`, "Content-Type: application/pdf\r\n"), plain, "a.txt"},
		"an invalid content type":      {part(`form-data; name="file"; filename="a.txt"`, "Content-Type: ;;\r\n"), plain, "a.txt"},
		"content in Base64":            {strings.Replace(part(`form-data; name="file"; filename="a.txt"`, "Content-Transfer-Encoding: base64\r\n"), "hello", "aGVs\r\nbG8=", 1), plain, "a.txt"},
		"quoted-printable content":     {strings.Replace(part(`form-data; name="file"; filename="a.txt"`, "Content-Transfer-Encoding: Quoted-Printable\r\n"), "hello", "hel=\r\nlo", 1), plain, "a.txt"},
		"line ends without CR":         {strings.ReplaceAll(part(`form-data; name="file"; filename="a.txt"`, ""), "\r\n", "\n"), plain, "a.txt"},
		"a preamble":                   {"preamble\r\n" + part(`form-data; name="file"; filename="a.txt"`, ""), plain, "a.txt"},
		"other parts":                  {"--x\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhi\r\n" + part(`form-data; name="file"; filename="a.txt"`, ""), plain, "a.txt"},
		"a boundary without quotes":    {strings.ReplaceAll(part(`form-data; name="file"; filename="a.txt"`, ""), "--x", "------=_Part_1"), "multipart/form-data; boundary=----=_Part_1", "a.txt"},
		"a boundary with a charset":    {part(`form-data; name="file"; filename="a.txt"`, ""), `Multipart/Form-Data; charset=UTF-8; boundary="x"`, "a.txt"},
	} {
		a := h.do(h.request(http.MethodPost, "/v1/assets", h.token("alice"), strings.NewReader(tc.body), "Content-Type", tc.ct))
		require.Equal(t, http.StatusCreated, a.status, "%s: %s", name, a.body)
		got, _ := a.json(t)["name"].(string)
		require.Equal(t, tc.want, got, name)
		stored := h.do(h.request(http.MethodGet, "/v1/assets/"+a.json(t)["assetId"].(string), h.token("alice"), nil))
		require.Equal(t, "hello", string(stored.body), name)
	}
}

func TestUploadAsset_PartIsMissing_WhatWasReceivedIsStated(t *testing.T) { // FU3
	t.Parallel()
	h := newHarness(t)
	part := func(disposition string) string {
		return "--x\r\nContent-Disposition: " + disposition + "\r\n\r\nhello\r\n"
	}
	for want, body := range map[string]string{
		`the part is missing: it must be named file, and the body has "photo", one without a name`:     part(`form-data; name="photo"`) + part(`form-data; filename="a.txt"`) + "--x--\r\n",
		`the part is missing: it must be named file, and the body has "File"`:                          part(`form-data; name="File"; filename=a b`) + "--x--\r\n",
		"the part is missing: the body has no parts":                                                   "--x--\r\n",
		`the part is missing: it must be named file, and the body has "a", "a", "a", "a", "a", others`: strings.Repeat(part(`form-data; name="a"`), 20) + "--x--\r\n",
	} {
		a := h.do(h.request(http.MethodPost, "/v1/assets", h.token("alice"), strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=x"))
		require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
		require.Equal(t, want, a.problem.Detail)
		require.Equal(t, "file", a.problem.Field)
	}
}
