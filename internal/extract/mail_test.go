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
		"--a\nContent-Type: text/html\n\n<p>工程师</p>\n--a--\n" +
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
		"too deep":         {head + nested(40), "the file is too complex"},
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

// mailHead are the fields that each message of a table begins with, and shownHead is what a reader sees of them.
const (
	mailHead  = "From: Ada <ada@example.org>\nTo: bob@example.org\nSubject: Job\nMIME-Version: 1.0\n"
	shownHead = "From: Ada <ada@example.org>\nTo: bob@example.org\nSubject: Job\n"
)

// parted returns a message of these parts.
func parted(kind string, parts ...string) string {
	return mailHead + "Content-Type: " + kind + "; boundary=\"=_b\"\n\nThis is a multi-part message.\n--=_b\n" + strings.Join(parts, "\n--=_b\n") + "\n--=_b--\n"
}

func TestText_MailAsProgramsWriteIt_NoTextIsLost(t *testing.T) { // FU1
	t.Parallel()
	const text = "Content-Type: text/plain; charset=utf-8\n\n"
	page := func(body string) string {
		return "Content-Type: text/html; charset=utf-8\n\n<html><body>" + body + "</body></html>"
	}
	forwarded := "From: Eve <eve@example.org>\nSubject: Inner\nMIME-Version: 1.0\n\nInner text"
	plain := func(fields, body string) string { return mailHead + fields + "\n" + body }
	for name, c := range map[string]struct{ source, want string }{
		// Attachments and forwarded messages.
		"attachments without a name": {
			parted("multipart/mixed", text+"Hello", "Content-Type: application/pdf\n\nx", "Content-Type: image/png\nContent-Disposition: inline\n\nx", "Content-Type: image/png\n\nx"),
			"Hello\n\nAttachment, which is not included: one without a name, application/pdf\nAttachment, which is not included: one without a name, image/png (2 times)",
		},
		"an attached text":         {parted("multipart/mixed", text+"Hello", "Content-Type: text/plain\nContent-Disposition: attachment; filename=\"=?utf-8?q?Zo=C3=AB?=.txt\"\n\nx"), "Hello\n\nAttachment, which is not included: Zoë.txt"},
		"an attachment in Chinese": {parted("multipart/mixed", text+"Hello", "Content-Type: application/pdf\nContent-Disposition: attachment;\n filename*=gb2312''%B9%A4%B3%CC.pdf\n\nx"), "Hello\n\nAttachment, which is not included: 工程.pdf"},
		"a forwarded message":      {parted("multipart/mixed", text+"See below", "Content-Type: message/rfc822\n\n"+forwarded), "See below\n\nForwarded message:\nFrom: Eve <eve@example.org>\nSubject: Inner\n\nInner text"},
		"attached, forwarded":      {parted("multipart/mixed", text+"See below", "Content-Type: message/rfc822\nContent-Disposition: attachment; filename=a.eml\n\n"+forwarded), "See below\n\nForwarded message:\nFrom: Eve <eve@example.org>\nSubject: Inner\n\nInner text"},
		"forwarded in Base64":      {parted("multipart/mixed", text+"See below", "Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nU3ViamVjdDogSW5uZXIKCklubmVyIHRleHQ="), "See below\n\nForwarded message:\nSubject: Inner\n\nInner text"},
		"only forwarded":           {plain("Content-Type: message/rfc822\n", forwarded), "Forwarded message:\nFrom: Eve <eve@example.org>\nSubject: Inner\n\nInner text"},
		"a digest":                 {parted("multipart/digest", "\n"+forwarded, "\nSubject: Two\n\nMore"), "Forwarded message:\nFrom: Eve <eve@example.org>\nSubject: Inner\n\nInner text\n\nForwarded message:\nSubject: Two\n\nMore"},
		"a report":                 {parted("multipart/report", text+"Not delivered", "Content-Type: message/delivery-status\n\nStatus: 5.1.1"), "Not delivered\n\nStatus: 5.1.1"},
		"of Outlook, attached":     {parted("multipart/mixed", text+"Hello", "Content-Type: application/ms-tnef; name=\"winmail.dat\"\n\nx"), "Hello\n\nAttachment, which is not included: winmail.dat"},
		"signed":                   {parted("multipart/signed", text+"Hello", "Content-Type: application/pgp-signature\n\nx"), "Hello\n\nAttachment, which is not included: one without a name, application/pgp-signature"},
		"a page with its style":    {parted("multipart/related", page("<p>Hello"), "Content-Type: text/css\n\np{}", "Content-Type: image/png; name=\"logo.png\"\nContent-ID: <a>\n\nx"), "Hello\n\nAttachment, which is not included: logo.png"},

		// Alternatives.
		"alternatives":               {parted("multipart/alternative", text+"Go engineer in Zürich", page("<p>Go engineer in <b>Zürich</b></p>")), "Go engineer in Zürich"},
		"a stub, then a page":        {parted("multipart/alternative", text+"Your client does not show HTML.", page("<p>Go engineer in Zürich</p>")), "Your client does not show HTML.\n\nGo engineer in Zürich"},
		"an empty one, then a page":  {parted("multipart/alternative", text, page("<p>Go engineer</p>")), "Go engineer"},
		"a link, then a page":        {parted("multipart/alternative", text+"https://example.org/jobs/go-engineer-12", page("<p>Go engineer</p>")), "Go engineer"},
		"a summary, then a page":     {parted("multipart/alternative", text+"Go engineer", page("<p>Go engineer</p><p>Six years of Redis, five of Temporal</p>")), "Go engineer\nSix years of Redis, five of Temporal"},
		"addresses in one":           {parted("multipart/alternative", text+"Apply here <https://example.org/apply/now?x=1>", page("<a href=x>Apply here</a>")), "Apply here <https://example.org/apply/now?x=1>"},
		"an empty page":              {parted("multipart/alternative", text+"Go engineer", page("<img src=x>")), "Go engineer"},
		"related in an alternative":  {parted("multipart/alternative", text+"stub", "Content-Type: multipart/related; boundary=c\n\n--c\n"+page("<p>Go engineer</p>")+"\n--c\nContent-Type: image/png; name=a.png\n\nx\n--c--"), "stub\n\nGo engineer\n\nAttachment, which is not included: a.png"},
		"Chinese alternatives":       {parted("multipart/alternative", text+"高级工程师，五年经验", page("<p>高级工程师，</p><p>五年经验</p>")), "高级工程师，五年经验"},
		"an invitation":              {parted("multipart/alternative", text+"You are invited", "Content-Type: text/calendar; method=REQUEST\n\nBEGIN:VCALENDAR\nSUMMARY:Inter\n view\nEND:VCALENDAR"), "You are invited\n\nBEGIN:VCALENDAR\nSUMMARY:Interview\nEND:VCALENDAR"},
		"only an invitation":         {plain("Content-Type: text/calendar\n", "BEGIN:VCALENDAR\nEND:VCALENDAR\n"), "BEGIN:VCALENDAR\nEND:VCALENDAR"},
		"a page that is called text": {plain("Content-Type: text/plain\n", "<html><body><p>Hello</p></body></html>"), "Hello"},

		// Fields.
		"no MIME-Version":       {"From: Ada <ada@example.org>\nTo: bob@example.org\nSubject: Job\nContent-Type: text/html\n\n<p>Hello</p>", "Hello"},
		"no MIME-Version, Q":    {"From: =?utf-8?q?Ada?= <ada@example.org>\nTo: bob@example.org\nSubject: Job\n\nHello", "Hello"},
		"a mark before":         {"\ufeff" + mailHead + "\nHello", "Hello"},
		"lines before":          {"\r\n \r\n" + mailHead + "\nHello", "Hello"},
		"a line of a mailbox":   {"From ada@example.org Mon Nov  2 10:00:00 2026\n" + mailHead + "\n>From here\n>>From x\nHello", "From here\n>From x\nHello"},
		"a line within":         {strings.Replace(mailHead, "To:", ">From ada Mon Nov  2 10:00:00 2026\nTo:", 1) + "\nHello", "Hello"},
		"CR":                    {strings.ReplaceAll(mailHead+"\nHello\nyou", "\n", "\r"), "Hello\nyou"},
		"of Apple Mail":         {"123       \n" + mailHead + "X: " + strings.Repeat("y", 123-len(mailHead)-len("X: \n\nHello")) + "\n\nHello<?xml version=\"1.0\"?><plist/>", "Hello"},
		"a space before colons": {strings.ReplaceAll(mailHead, ": ", " : ") + "\nHello", "Hello"},
		"no empty line":         {mailHead + "Content-Type: text/plain\n\nHello", "Hello"},
		"no body, a page":       {mailHead + "Content-Type: text/html;\n\tcharset=utf-8\n\n<body>Hello", "Hello"},

		// Content-Type.
		"no Content-Type, a page": {mailHead + "\n<!DOCTYPE html><html><body>Hello", "Hello"},
		"a charset twice":         {plain("Content-Type: text/plain; charset=utf-8; charset=utf-8\n", "Zoë"), "Zoë"},
		"no semicolon":            {plain("Content-Type: text/html charset=utf-8\n", "<p>Zoë"), "Zoë"},
		"half a type":             {plain("Content-Type: text\n", "Zoë"), "Zoë"},
		"a charset with a space":  {plain("Content-Type: text/plain; charset=\"gb2312 \"\n", "\xb9\xa4\xb3\xcc\xca\xa6"), "工程师"},
		"an unknown charset":      {plain("Content-Type: text/plain; charset=x-unknown\n", "Zoë"), "Zoë"},
		"no charset, GB18030":     {plain("", "\xb9\xa4\xb3\xcc\xca\xa6\xa3\xac\xbe\xad\xd1\xe9"), "工程师，经验"},
		"a wrong charset":         {plain("Content-Type: text/plain; charset=gb2312\n", "Schöne Grüße aus Köln"), "Schöne Grüße aus Köln"},
		"a charset too small":     {plain("Content-Type: text/plain; charset=gb2312\n", "\xb9\xa4\x81\x39\xee\x39"), "工㐀"},
		"a page that states it":   {plain("Content-Type: text/html\n", "<html><meta charset=gb2312><body>\xb9\xa4\xb3\xcc</body>"), "工程"},
		"flowed":                  {plain("Content-Type: text/plain; format=flowed\n", "One long \nparagraph.\n> quoted \n> text\nEnd \n-- \nAda"), "One long paragraph.\n> quoted text\nEnd\n--\nAda"},
		"flowed, stuffed":         {plain("Content-Type: text/plain; format=flowed; delsp=yes\n", "工程 \n师\n From here\n"), "工程师\nFrom here"},

		// Only fields.
		"no text":           {mailHead + "\n", ""},
		"no text in HTML":   {plain("Content-Type: text/html\n", "\n"), ""},
		"no text, no line":  {mailHead, ""},
		"no text in a part": {parted("multipart/mixed", text+"  "), ""},

		// Transfer encodings.
		"Base64 with a footer":     {plain("Content-Transfer-Encoding: base64\n", "SGVsbG8g\nWm/Dqw==\n____________\nList info\n"), "Hello Zoë\n____________\nList info"},
		"Base64, lines apart":      {plain("Content-Transfer-Encoding: BASE64\n", "SGVsbG8g\n\nWm/Dqw\n"), "Hello Zoë"},
		"Base64, a footer, no end": {plain("Content-Transfer-Encoding: base64 \n", "SGVsbG8g\n\nUnsubscribe: x\n"), "Hello\n\nUnsubscribe: x"},
		"Base64 in blocks":         {plain("Content-Transfer-Encoding: base64\n", "RGFzIGlzdCBlaW4gVGV4dC4=\nTm9jaCBlaW5lci4=  \t\nWm/Dqw==\n"), "Das ist ein Text.Noch einer.Zoë"},
		"Base64 blocks in a line":  {plain("Content-Transfer-Encoding: base64\n", "RGFzIGlzdCBl\n aW4g\tVGV4dA== IFR3bw==IQ==\nTm9jaCBlaW5lcg==\n\nRegards Ada\n"), "Das ist ein Text Two!Noch einer\n\nRegards Ada"},
		"Base64 folded by spaces":  {plain("Content-Transfer-Encoding: base64\n", "RGFzIGlzdCBlaW4g VGV4dC4gTm9jaCBl aW5lci4=\n"), "Das ist ein Text. Noch einer."},
		"Base64 folded by tabs":    {plain("Content-Transfer-Encoding: base64\n", "RGFzIGlzdCBlaW4g\tVGV4dC4gTm9jaCBl\naW5lci4=\n"), "Das ist ein Text. Noch einer."},
		"Base64, lines indented":   {plain("Content-Transfer-Encoding: base64\n", "  RGFzIGlzdCBlaW4g\n\tVGV4dC4gTm9jaCBl\n aW5lci4=\n"), "Das ist ein Text. Noch einer."},
		"Base64, far apart":        {plain("Content-Transfer-Encoding: base64\n", "RGFzIGlzdCBlaW4gVGV4dC4g\n\n\nTm9jaCBlaW5lci4=\n\n\nUnsubscribe: https://lists.example.org/o/Tm9jaCBlaW5lci4\n"), "Das ist ein Text. Noch einer.\n\nUnsubscribe: https://lists.example.org/o/Tm9jaCBlaW5lci4"},
		"Base64, foreign letters":  {plain("Content-Transfer-Encoding: base64\n", "RGFzIGlzdCBlaW4g\nVGV4dC4g*Tm9jaCBl\naW5!lci4=\n"), "Das ist ein Text. Noch einer."},
		"Base64, lines marked":     {plain("Content-Transfer-Encoding: base64\n", "RGFzIGlzdCBlaW4g!\n VGV4dC4gTm9jaCBl!\n aW5lci4=\n"), "Das ist ein Text. Noch einer."},
		"Base64, a footer of one":  {plain("Content-Transfer-Encoding: base64\n", "SGVsbG8=\nUnsubscribe\n"), "Hello\nUnsubscribe"},
		"Base64, footer in words":  {plain("Content-Transfer-Encoding: base64\n", "SGVsbG8g\nWm/Dqw==\n\nSent by the list Go Jobs\nhttps://lists.example.org/mailman/listinfo/go\njobs@example.org\n\nMcDonald GmbH 2026\n"), "Hello Zoë\n\nSent by the list Go Jobs\nhttps://lists.example.org/mailman/listinfo/go\njobs@example.org\n\nMcDonald GmbH 2026"},
		"words, not Base64":        {plain("Content-Transfer-Encoding: base64\n", "This is plain text\nand so is this\n"), "This is plain text\nand so is this"},
		"not Base64 at all":        {plain("Content-Transfer-Encoding: base64\n", "Hello, this is plain.\n"), "Hello, this is plain."},
		"quoted, lower case":       {plain("Content-Transfer-Encoding: Quoted-Printable\nContent-Type: text/plain; charset=utf-8\n", "Zo=c3=ab"), "Zoë"},
		"quoted, a soft end":       {plain("Content-Transfer-Encoding: quoted-printable\n", "Hel=  \nlo=\n"), "Hello"},
		"quoted, an open end":      {plain("Content-Transfer-Encoding: quoted-printable\n", "Hello="), "Hello"},
		"quoted, 8 bits":           {plain("Content-Transfer-Encoding: quoted-printable\n", "Zoë =E4=BD=A0"), "Zoë 你"},
		"quoted, no code":          {plain("Content-Transfer-Encoding: quoted-printable\n", "a = b, x=zz, 5=4"), "a = b, x=zz, 5=4"},
		"uuencoded":                {plain("Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: x-uuencode\n", "begin 644 a.txt\n.:&5L;&\\@=V]R;&3#JPH \n`\nend\n"), "hello worldë"},
		"uuencoded, spaces cut":    {plain("Content-Transfer-Encoding: UUENCODE\n", "See:\nbegin 644 a\n#86)C\n\"86(\n!80\n`\nend\n-- \nAda\n"), "See:\nabcaba\n--\nAda"},
		"uuencoded, not at all":    {plain("Content-Transfer-Encoding: x-uue\n", "begin at nine, end at ten\n"), "begin at nine, end at ten"},
		"UTF-7, but ASCII":         {plain("Content-Type: text/plain; charset=utf-7\n", "Hello\n"), "Hello"},
		"declared as cp850":        {plain("Content-Type: text/plain; charset=cp850\n", "Ing\x82nieur \x85 Z\x81rich"), "Ingénieur à Zürich"},
		"declared as IBM437":       {plain("Content-Type: text/plain; charset=\"IBM437\"\n", "Ing\x82nieur \x85 Z\x81rich"), "Ingénieur à Zürich"},
		"declared as cp852":        {plain("Content-Type: text/plain; charset=cp852\n", "P\xfdijdu v pond\xd8l\xa1"), "Přijdu v pondělí"},
		"declared as IBM866":       {plain("Content-Type: text/plain; charset=ibm-866\n", "\x88\xad\xa6\xa5\xad\xa5\xe0"), "Инженер"},
		"declared as mac":          {plain("Content-Type: text/plain; charset=x-mac-roman\n", "Z\x9frich"), "Zürich"},
		"declared as cp1250":       {plain("Content-Type: text/plain; charset=cp-1250\n", "P\xf8ijdu"), "Přijdu"},
		"declared as Latin 10":     {plain("Content-Type: text/plain; charset=iso-8859-16\n", "Rom\xe2n\xe3, \xbai"), "Română, și"},
		"declared as UTF-32":       {plain("Content-Type: text/plain; charset=utf-32be\nContent-Transfer-Encoding: base64\n", "AAAAWgAAAG8AAADr\n"), "Zoë"},
		"an unknown encoding":      {plain("Content-Transfer-Encoding: 8-bit\n", "Zoë"), "Zoë"},

		// Boundaries.
		"no last boundary":        {strings.TrimSuffix(parted("multipart/mixed", text+"Hello"), "\n--=_b--\n") + "\n", "Hello"},
		"no padding, closed":      {strings.TrimSuffix(parted("multipart/mixed", "Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\nSGVsbG8"), "\n"), "Hello"},
		"no boundary in the type": {strings.Replace(parted("multipart/mixed", text+"Hello"), "; boundary=\"=_b\"", "", 1), "Hello"},
		"another in the type":     {strings.Replace(parted("multipart/mixed", text+"Hello"), "; boundary=\"=_b\"", "; boundary=other", 1), "Hello"},
		"no parts":                {plain("Content-Type: multipart/mixed; boundary=b\n", "Hello\n"), "Hello"},
		"spaces behind":           {strings.ReplaceAll(parted("multipart/mixed", text+"Hello"), "--=_b\n", "--=_b  \n"), "Hello"},
		"one begins like another": {parted("multipart/mixed", "Content-Type: multipart/alternative; boundary=\"=_b1\"\n\n--=_b1\n"+text+"Hello\n--=_b1--", text+"Bye"), "Hello\n\nBye"},
		"inner one not closed":    {parted("multipart/mixed", "Content-Type: multipart/alternative; boundary=c\n\n--c\n"+text+"Hello", text+"Bye"), "Hello\n\nBye"},
		"no header of a part":     {parted("multipart/mixed", "\nHello", text+"Bye"), "Hello\n\nBye"},
		"encoded as a whole":      {mailHead + "Content-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: base64\n\nLS1iCgpIZWxsbwotLWItLQo=\n", "Hello"},
	} {
		out, err := read([]byte(c.source), 2000)
		require.NoError(t, err, name)
		require.Equal(t, strings.TrimRight(shownHead+"\n"+c.want, "\n"), out, name)
		if !strings.Contains(name, "CR") && !strings.Contains(name, "Apple") {
			again, err := read([]byte(strings.ReplaceAll(c.source, "\n", "\r\n")), 2000)
			require.NoError(t, err, "%s with CRLF", name)
			require.Equal(t, out, again, "%s with CRLF", name)
		}
	}
	for name, c := range map[string]struct{ source, want string }{
		"only an Outlook attachment": {plain("Content-Type: application/ms-tnef; name=winmail.dat\n", "x"), "the message contains no text: it is in an Outlook attachment (winmail.dat); let the sender send it as HTML or plain text"},
		"encrypted":                  {parted("multipart/encrypted", "Content-Type: application/pgp-encrypted\n\nVersion: 1"), "the message is encrypted: save it without encryption"},
		"encrypted with S/MIME":      {plain("Content-Type: application/pkcs7-mime; name=smime.p7m\n", "x"), "the message is encrypted"},
		"only a page of images":      {plain("Content-Type: text/html\n", "<img src=x>"), "the message contains no text"},
		"NUL in Base64":              {plain("Content-Transfer-Encoding: base64\n", "SGVsbABvIHlvdQ==\n"), "the text contains NUL characters"},
		"cut off in Base64":          {plain("Content-Transfer-Encoding: base64\n", "SGVsbG8gWm/Dqw==\nSGVsbG8gWm/Dq"), "the file is damaged or incomplete"},
		"cut off in Base64, a line":  {plain("Content-Transfer-Encoding: base64\n", "SGVsbG8g\nWm/Dq\n"), "the file is damaged or incomplete"},
		"cut off in three letters":   {plain("Content-Transfer-Encoding: base64\n", "SGVsbG8g\nWm/"), "the file is damaged or incomplete"},
		"cut off in a part, Base64":  {strings.TrimSuffix(parted("multipart/mixed", text+"Hello", "Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\nSGVsbG8gW"), "\n--=_b--\n") + "\n", "the file is damaged or incomplete"},
		"in UTF-7":                   {plain("Content-Type: text/plain; charset=utf-7\n", "Hallo +AOQ-hnlich\n"), "the message is in UTF-7, which is not supported: save its text as UTF-8"},
		"a part in UTF-7":            {parted("multipart/mixed", text+"Hello", "Content-Type: text/html; charset=\"unicode-1-1-UTF-7\"\n\n+AOQ-"), "the message is in UTF-7"},
		"uuencoded, cut off":         {plain("Content-Transfer-Encoding: x-uuencode\n", "begin 644 a\n#86)C\n#86"), "the file is damaged or incomplete"},
		"cut off in a line":          {strings.TrimSuffix(parted("multipart/mixed", text+"Hello"), "\n--=_b--\n"), "the file is damaged or incomplete"},
	} {
		out, err := read([]byte(c.source), 2000)
		require.ErrorContains(t, err, c.want, "%s %q", name, out)
	}
}

func TestText_MailFields_DecodedWherePossible(t *testing.T) { // FU1
	t.Parallel()
	for field, want := range map[string]string{
		"=?utf-8?B?5bel56iL5biI?=":                             "工程师",
		"Re: =?UTF-8?Q?Zo=C3=AB_writes?= now":                  "Re: Zoë writes now",
		"=?utf-8?B?5bel56g=?= =?utf-8?B?i+W4iA==?=":            "工程师", // cut within a character
		"=?utf-8?B?5bel?=\n =?utf-8?B?56iL?=\n\t=?utf-8?Q?!?=": "工程!",
		"=?utf-8?Q?a?= =?gb2312?B?uaQ=?=":                      "a工",
		"=?utf-8?Q?a?= b =?utf-8?Q?c?=":                        "a b c",
		"=?utf-8*en?Q?a?=":                                     "a",
		"=?utf-8?q?a b?c?=":                                    "a b?c",
		"=?utf-8?B?5bel56iL5biI":                               "=?utf-8?B?5bel56iL5biI",
		"=?utf-8?B?5bel5?=":                                    "工",
		"=?x-unknown?Q?a=62?=":                                 "ab",
		"Zoë":                                                  "Zoë",
		"\xb9\xa4\xb3\xcc\xca\xa6\xbe\xad\xd1\xe9":             "工程师经验",
		"=?utf-8?Q?a=00b?=":                                    "ab",
		"a =?= b":                                              "a =?= b",
	} {
		out, err := read([]byte("MIME-Version: 1.0\nSubject: "+field+"\n\nHello"), 1000)
		require.NoError(t, err, "%q", field)
		require.Equal(t, "Subject: "+want+"\n\nHello", out, "%q", field)
	}
}

func TestText_Mailbox_AllMessagesAreRead(t *testing.T) { // FU1
	t.Parallel()
	one := "From ada@example.org Mon Nov  2 10:00:00 2026\nSubject: One\n\nHello\n\nFrom here it goes 10:00:00\n"
	two := "From - Tue Nov  3 10:00:00 2026\nSubject: Two\nContent-Type: text/html\n\n<p>Bye</p>\n"
	out, err := readAs("all.mbox", []byte(one+"\n"+two), 1000)
	require.NoError(t, err)
	require.Equal(t, "Subject: One\n\nHello\n\nFrom here it goes 10:00:00\n\nSubject: Two\n\nBye", out)
	_, err = readAs("all.mbox", []byte(strings.Repeat(one+"\n", 100)), 1000)
	require.ErrorIs(t, err, ErrTooLong)
}

// A text about messages is not one.
func TestDetect_TextWithFields_IsText(t *testing.T) { // FU1
	t.Parallel()
	for _, text := range []string{
		"MIME-Version: 1.0 is a field.\nHello", "From: me\nSubject: you\n\nhello", "Subject: Go\nI write Go.\n", "Content-Type: application/json\n\n{}",
		"Content-Type: text/html\nAccept: x\n\nGo", "HTTP/1.1 200 OK\nContent-Type: text/html\nDate: x\n\n<p>", "Date: today\nMood: good\n\nDear diary",
		"123\nFrom: me", "12\n34\n", "---\ndate: x\n---\n\ntext",
	} {
		out, err := read([]byte(text), 1000)
		require.NoError(t, err, text)
		require.Equal(t, text, out)
	}
	out, err := readAs("hello.EML", []byte("From: me\nSubject: you\n\nhello=20\n"), 1000)
	require.NoError(t, err)
	require.Equal(t, "From: me\nSubject: you\n\nhello=20", out)
	out, err = readAs("notes.md", []byte("MIME-Version: 1.0\nSubject: you\n\nhello\n"), 1000)
	require.NoError(t, err)
	require.Equal(t, "MIME-Version: 1.0\nSubject: you\n\nhello\n", out)
}
