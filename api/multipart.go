package api

import (
	"encoding/base64"
	"errors"
	"io"
	"mime/multipart"
	"mime/quotedprintable"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/mediatype"
)

const (
	// maxNamed is how many parts an error names, and maxPartName how much of each name.
	maxNamed    = 5
	maxPartName = 40
	maxFileName = 100
)

// readFile returns the part "file" of a multipart body. It buffers no more than the limit.
func (s *server) readFile(c echo.Context) (name string, content []byte, err error) {
	limit, req := s.Config.MaxUploadBytes, c.Request()
	header := req.Header.Get(echo.HeaderContentType)
	if !strings.HasPrefix(strings.ToLower(header), "multipart/form-data") {
		return "", nil, errorIn(echo.HeaderContentType, berth.CodeUnsupportedMedia, "must be multipart/form-data, with the part file")
	}
	if req.ContentLength > bodyFactor*limit {
		return "", nil, exceeds("body", limit)
	}
	rc := http.NewResponseController(c.Response())
	_ = rc.SetReadDeadline(time.Now().Add(4 * s.Config.BodyTimeout)) // a writer without deadlines is a test's
	req.Body = io.NopCloser(io.LimitReader(req.Body, bodyFactor*limit))
	defer func() {
		if err != nil {
			return // see discard
		}
		if _, derr := io.Copy(io.Discard, req.Body); derr == nil { // what follows the last part
			_ = rc.SetReadDeadline(time.Time{})
		}
	}()
	_, params := mediatype.Parse(header)
	boundary := params["boundary"]
	if boundary == "" {
		return "", nil, berth.Invalid("file", "the multipart body has no boundary")
	}
	form := multipart.NewReader(req.Body, boundary)
	found := false
	var others []string
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) && found {
			return name, content, nil
		}
		if errors.Is(err, io.EOF) {
			return "", nil, missing(others)
		}
		if err != nil {
			return "", nil, multipartError(err)
		}
		_, disposition := mediatype.Parse(part.Header.Get(echo.HeaderContentDisposition))
		if disposition["name"] != "file" {
			if len(others) <= maxNamed {
				others = append(others, disposition["name"])
			}
			continue
		}
		if found {
			return "", nil, berth.Invalid("file", "an upload has one file")
		}
		found = true
		if content, err = io.ReadAll(io.LimitReader(decoded(part), limit+1)); err != nil {
			return "", nil, multipartError(err)
		}
		if int64(len(content)) > limit {
			return "", nil, exceeds("file", limit)
		}
		name = fileName(formEscapes.Replace(disposition["filename"]))
	}
}

// decoded returns the content of a part. Forms have no transfer encodings any more (RFC 7578, 4.7), but some programs write them.
func decoded(part *multipart.Part) io.Reader {
	switch strings.ToLower(strings.TrimSpace(part.Header.Get("Content-Transfer-Encoding"))) {
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, part)
	case "quoted-printable":
		return quotedprintable.NewReader(part)
	}
	return part
}

// missing states which parts a body without the part "file" has.
func missing(names []string) error {
	if len(names) == 0 {
		return berth.Invalid("file", "the part is missing: the body has no parts")
	}
	listed := make([]string, 0, len(names))
	for _, name := range names[:min(len(names), maxNamed)] {
		if name == "" {
			listed = append(listed, "one without a name")
		} else {
			listed = append(listed, strconv.Quote(short(name, maxPartName)))
		}
	}
	if len(names) > maxNamed {
		listed = append(listed, "others")
	}
	return berth.Invalid("file", "the part is missing: it must be named file, and the body has %s", strings.Join(listed, ", "))
}

// multipartError translates errors of incomplete, slow or invalid multipart bodies.
func multipartError(err error) error {
	if errors.Is(err, multipart.ErrMessageTooLarge) {
		return errorIn("file", berth.CodeTooLarge, "the parts have too many headers").With(err)
	}
	e := bodyError(err)
	if berth.CodeOf(e) == berth.CodeInvalid {
		return berth.Invalid("file", "the multipart body could not be read").With(err)
	}
	return e
}

// formEscapes undoes the encoding of file names in forms of browsers (WHATWG HTML, multipart/form-data encoding algorithm).
var formEscapes = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n")

// fileName returns the last element of a path, in the form of names.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	if name == "." || name == "/" {
		return ""
	}
	return berth.CleanName(name, maxFileName)
}

// short returns the first characters of a text.
func short(s string, limit int) string {
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit])
	}
	return s
}
