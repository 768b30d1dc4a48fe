package extract

import (
	"errors"
	"fmt"
)

// Reason is why a file gives no text, and what to do instead. It is shown to the user who uploaded the file.
type Reason string

// Error returns the text for the user.
func (r Reason) Error() string { return string(r) }

// The reasons that do not depend on the format of the file.
const (
	ErrEncrypted = Reason("the file is protected by a password: remove the protection")
	ErrNoText    = Reason("the file contains no text: upload scanned pages as images")
	ErrDamaged   = Reason("the file is damaged or incomplete")
	ErrTooSlow   = Reason("the file is too complex: upload its text instead")
	ErrUnmapped  = Reason("the file's fonts do not state their characters: upload its pages as images")
	ErrForm      = Reason("the file is a form that only Adobe Reader shows: print it to a new PDF")
	ErrNUL       = Reason("the text contains NUL characters: save it as plain text in UTF-8")
	ErrEncoding  = Reason("the encoding of the text is not known: save it as UTF-8")
	ErrUnknown   = Reason("the file is neither text nor a document or image of a known kind")
)

// ErrTooLong means that the text exceeds the limit of the caller.
var ErrTooLong = errors.New("the text of the file is too long")

// Errors of this machine. Their texts name the packages to install.
var (
	ErrNoTool         = errors.New("pdftotext is not installed (Debian: apt-get install poppler-utils)")
	ErrNoLanguageData = errors.New("pdftotext lacks the character maps of Chinese, Japanese and Korean fonts (Debian: apt-get install poppler-data)")
)

// What to do with a file that is not supported.
const (
	saveAsImage    = "save it as JPEG or PNG"
	saveAsDocument = "save it as DOCX or PDF"
	saveAsPDF      = "save it as PDF"
	unpack         = "unpack it and upload the files in it"
	writeText      = "upload its content as text"
)

// unsupported returns the reason to refuse a file by the name of its kind.
func unsupported(name, advice string) Reason {
	return Reason(fmt.Sprintf("the file is %s, which is not supported: %s", name, advice))
}

// without returns the reason to refuse a file that was read but has no text.
func without(name, advice string) Reason {
	return Reason(fmt.Sprintf("the %s contains no text: %s", name, advice))
}
