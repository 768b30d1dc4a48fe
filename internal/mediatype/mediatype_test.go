package mediatype

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse_ValueAsProgramsWriteIt_KindAndParameters(t *testing.T) { // FU3
	t.Parallel()
	for value, want := range map[string]struct {
		kind   string
		params map[string]string
	}{
		`text/plain; charset=utf-8`:                             {"text/plain", map[string]string{"charset": "utf-8"}},
		`TEXT/Plain;Charset="UTF-8"`:                            {"text/plain", map[string]string{"charset": "UTF-8"}},
		`text/plain; charset=utf-8; charset=gbk`:                {"text/plain", map[string]string{"charset": "utf-8"}},
		`text/html charset=gbk`:                                 {"text/html", map[string]string{"charset": "gbk"}},
		`text/plain; charset`:                                   {"text/plain", map[string]string{}},
		`text/plain;; charset = utf-8 ;`:                        {"text/plain", map[string]string{"charset": "utf-8"}},
		`multipart/mixed; boundary=--a b/c; x=1`:                {"multipart/mixed", map[string]string{"boundary": "--a b/c", "x": "1"}},
		`multipart/mixed; boundary='a'`:                         {"multipart/mixed", map[string]string{"boundary": "'a'"}},
		`form-data; name="file"; filename="a "b".txt"`:          {"form-data", map[string]string{"name": "file", "filename": `a "b".txt`}},
		`attachment; filename=my cv.pdf`:                        {"attachment", map[string]string{"filename": "my cv.pdf"}},
		`attachment; filename*0="long "; filename*1="name.pdf"`: {"attachment", map[string]string{"filename": "long name.pdf"}},
		`attachment; filename*=UTF-8''Zo%C3%AB.pdf`:             {"attachment", map[string]string{"filename": "Zoë.pdf"}},
		`attachment; filename*=gb2312''%B9%A4.pdf`:              {"attachment", map[string]string{"filename": "工.pdf"}},
		`attachment; filename="x.pdf"; filename*=UTF-8''y.pdf`:  {"attachment", map[string]string{"filename": "y.pdf"}},
		`attachment; filename*=UTF-8''%zz`:                      {"attachment", map[string]string{"filename": "UTF-8''%zz"}},
		``:                                                      {"", map[string]string{}},
		`; charset=utf-8`:                                       {"", map[string]string{"charset": "utf-8"}},
	} {
		kind, params := Parse(value)
		require.Equal(t, want.kind, kind, value)
		for name, text := range want.params {
			require.Equal(t, text, params[name], "%s of %s", name, value)
		}
	}
}
