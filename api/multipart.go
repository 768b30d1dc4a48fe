package api

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"berth"
)

// readFile returns the part "file" of a multipart body with its declared type. It buffers no more than the limit.
func (s *server) readFile(c echo.Context) (name, declared string, content []byte, err error) {
	limit, req := s.Config.MaxUploadBytes, c.Request()
	if mt, _, err := mime.ParseMediaType(req.Header.Get(echo.HeaderContentType)); err != nil || mt != "multipart/form-data" {
		return "", "", nil, errorIn(echo.HeaderContentType, berth.CodeUnsupportedMedia, "must be multipart/form-data, with the part file")
	}
	if req.ContentLength > bodyFactor*limit {
		return "", "", nil, exceeds("body", limit)
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
	form, err := req.MultipartReader()
	if err != nil {
		return "", "", nil, berth.Invalid("file", "the multipart body has no boundary").With(err)
	}
	found := false
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) && found {
			return name, declared, content, nil
		}
		if errors.Is(err, io.EOF) {
			return "", "", nil, berth.Invalid("file", "the part is missing")
		}
		if err != nil {
			return "", "", nil, multipartError(err)
		}
		if part.FormName() != "file" {
			continue
		}
		if found {
			return "", "", nil, berth.Invalid("file", "an upload has one file")
		}
		found = true
		if content, err = io.ReadAll(io.LimitReader(part, limit+1)); err != nil {
			return "", "", nil, multipartError(err)
		}
		if int64(len(content)) > limit {
			return "", "", nil, exceeds("file", limit)
		}
		name = fileName(part)
		declared, _, _ = mime.ParseMediaType(part.Header.Get(echo.HeaderContentType)) // without one it is nothing
	}
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

// fileName returns the last element of a path, printable and short.
func fileName(part *multipart.Part) string {
	name := path.Base(strings.ReplaceAll(part.FileName(), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, name)
	if runes := []rune(name); len(runes) > 100 {
		name = string(runes[:100])
	}
	if name == "." || name == "/" {
		return ""
	}
	return name
}
