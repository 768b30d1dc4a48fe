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
		"two files": {twice, ct, 400},
		"text as image": {
			"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\nhello\r\n--x--\r\n",
			"multipart/form-data; boundary=x", 415,
		},
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
