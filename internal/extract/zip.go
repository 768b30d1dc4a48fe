package extract

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxXML limits the size of all parts that are read after decompression, and maxParts their number of each kind.
	maxXML   = 16 << 20
	maxParts = 20
)

// zipKinds are the formats that are ZIP archives, by the beginning of the name of an entry.
var zipKinds = []struct{ entry, name, advice string }{
	{"xl/", "an Excel workbook", saveAsPDF},
	{"ppt/", "a PowerPoint presentation", saveAsPDF},
	{"visio/", "a Visio drawing", saveAsPDF},
	{"Index/", "a document of Apple Pages, Numbers or Keynote", saveAsPDF},
	{"index.apxl", "a Keynote presentation", saveAsPDF},
	{"Contents/section0.xml", "a Hangul document", saveAsDocument},
	{"Documents/1/", "an XPS document", saveAsPDF},
	{"FixedDocSeq.fdseq", "an XPS document", saveAsPDF},
	{"OFD.xml", "an OFD document", saveAsPDF},
	{"content.xmind", "a mind map", saveAsPDF},
	{"AndroidManifest.xml", "an Android app", writeText},
	{"META-INF/MANIFEST.MF", "a Java archive", writeText},
}

// zipTypes are the formats whose first entry is their media type.
var zipTypes = map[string]struct{ name, advice string }{
	"application/epub+zip":                                    {"an EPUB book", saveAsPDF},
	"application/vnd.oasis.opendocument.spreadsheet":          {"an OpenDocument spreadsheet", saveAsPDF},
	"application/vnd.oasis.opendocument.presentation":         {"an OpenDocument presentation", saveAsPDF},
	"application/vnd.oasis.opendocument.graphics":             {"an OpenDocument drawing", saveAsPDF},
	"application/hwp+zip":                                     {"a Hangul document", saveAsDocument},
	"application/vnd.oasis.opendocument.formula":              {"an OpenDocument formula", saveAsPDF},
	"application/vnd.adobe.indesign-idml-package":             {"an InDesign document", saveAsPDF},
	"application/vnd.oasis.opendocument.database":             {"an OpenDocument database", writeText},
	"application/vnd.oasis.opendocument.chart":                {"an OpenDocument chart", saveAsPDF},
	"application/vnd.oasis.opendocument.spreadsheet-template": {"an OpenDocument spreadsheet", saveAsPDF},
}

// archive is a document that consists of parts in a ZIP archive.
type archive struct {
	parts map[string]*zip.File
	left  *int // bytes that may still be read
}

// zipped returns the format of a ZIP archive.
func zipped(content []byte) Format {
	a, err := openArchive(content)
	if err != nil {
		return Format{Reason: ErrDamaged}
	}
	if a.documentPart() != "" {
		return Format{read: docx}
	}
	if kind, err := a.read("mimetype"); err == nil {
		kind := strings.TrimSpace(string(kind))
		if strings.HasPrefix(kind, odtType) {
			return Format{read: odt}
		}
		if t, found := zipTypes[kind]; found {
			return Format{Reason: unsupported(t.name, t.advice)}
		}
	}
	for _, k := range zipKinds {
		for name := range a.parts {
			if strings.HasPrefix(name, k.entry) {
				return Format{Reason: unsupported(k.name, k.advice)}
			}
		}
	}
	return Format{Reason: unsupported("a ZIP archive", unpack)}
}

func openArchive(content []byte) (archive, error) {
	r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // nothing is written to files
		return archive{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	left := maxXML
	a := archive{parts: make(map[string]*zip.File, len(r.File)), left: &left}
	for _, f := range r.File {
		name := strings.TrimPrefix(strings.ReplaceAll(f.Name, `\`, "/"), "/")
		if a.parts[name] == nil {
			a.parts[name] = f
		}
	}
	return a, nil
}

// read returns the content of a part.
func (a archive) read(name string) ([]byte, error) {
	f := a.parts[name]
	if f == nil {
		return nil, ErrDamaged
	}
	if f.Flags&1 != 0 {
		return nil, ErrEncrypted
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer func() { _ = r.Close() }() // it was only read from
	b, err := io.ReadAll(io.LimitReader(r, int64(*a.left)+1))
	switch {
	case len(b) > *a.left:
		return nil, ErrTooLong
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	*a.left -= len(b)
	return b, nil
}
