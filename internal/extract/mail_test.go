package extract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText_Mail_ReadersTextIsRead(t *testing.T) { // FU1
	t.Parallel()
	head := "Received: by x\nFrom: =?utf-8?q?Zo=C3=AB?= <z@example.org>\nSubject: =?gb2312?b?uaTPs8qm?=\n"
	multi := head + "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=m\n\n--m\nContent-Type: multipart/alternative; boundary=a\n\n" +
		"--a\nContent-Type: text/plain; charset=gb2312\nContent-Transfer-Encoding: base64\n\nuaSzzMqm\n" +
		"--a\nContent-Type: text/html\n\n<p>again</p>\n--a--\n" +
		"--m\nContent-Type: application/pdf; name=\"cv.pdf\"\nContent-Transfer-Encoding: base64\nContent-Disposition: attachment\n\nJVBERi0x\n--m--\n"
	for name, c := range map[string]struct{ source, want string }{
		"plain":     {head + "MIME-Version: 1.0\n\nHello\n", "Hello"},
		"CRLF":      {strings.ReplaceAll(head+"\nHello\n", "\n", "\r\n"), "Hello"},
		"quoted":    {head + "MIME-Version: 1.0\nContent-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\nR=E9sum=\ne", "Résume"},
		"HTML":      {head + "MIME-Version: 1.0\nContent-Type: text/html\n\n<p>Hello</p><script>x</script>", "Hello"},
		"a lie":     {head + "MIME-Version: 1.0\nContent-Type: text/plain; charset=us-ascii\n\nGrüße", "Grüße"},
		"Latin 1":   {head + "MIME-Version: 1.0\nContent-Type: text/plain; charset=iso-8859-1\n\nGrüße", "Grüße"},
		"multipart": {multi, "工程师\n\nAttachment, which is not included: cv.pdf"},
	} {
		out, err := read([]byte(c.source), 1000)
		require.NoError(t, err, name)
		require.Contains(t, out, "From: Zoë <z@example.org>\nSubject: ", name)
		require.Equal(t, c.want, out[strings.Index(out, "\n\n")+2:], name)
	}
	for name, c := range map[string]struct{ source, want string }{
		"attachments only": {head + "MIME-Version: 1.0\nContent-Type: application/pdf; name=a.pdf\n\nx", "the message contains no text"},
		"a mailbox":        {"From z@example.org Mon Nov  2 10:00:00 2026\n" + head + "\nHello\n", "the file is a mailbox, which is not supported"},
		"too deep":         {head + nested(20), "the file is too complex"},
		"too long":         {head + "\n" + strings.Repeat("x", 1001), "the text of the file is too long"},
		"cut off":          {multi[:len(multi)-100], "the file is damaged"},
	} {
		_, err := read([]byte(c.source), 1000)
		require.ErrorContains(t, err, c.want, name)
	}
}

// nested returns a message with this many levels.
func nested(levels int) string {
	var out strings.Builder
	for i := range levels {
		b := strings.Repeat("b", i+1)
		out.WriteString("Content-Type: multipart/mixed; boundary=" + b + "\n\n--" + b + "\n")
	}
	return out.String() + "\nx"
}
