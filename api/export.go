package api

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"
)

// ndjson is the media type of an export: one JSON object per line.
const ndjson = "application/x-ndjson"

// forExports is the rule of routes with exports. An export has no time limit; each of its pages has one.
var forExports = rule{scopes: forUsers.scopes, stream: true}

// exportOutput is a JSON object, or an export.
type exportOutput struct {
	ContentType string `header:"Content-Type"`
	Body        func(huma.Context)
}

// object returns a response of one JSON object.
func (s *server) object(ctx context.Context, v any) *exportOutput {
	return &exportOutput{ContentType: echo.MIMEApplicationJSON, Body: func(c huma.Context) {
		s.abortOn(ctx, json.NewEncoder(c.BodyWriter()).Encode(v))
	}}
}

// export returns a response of all rows. The first page is read before the response begins, so that an error has a status. format returns
// how a page is written.
func export[T any](
	ctx context.Context, s *server, mediaType string, rows []T, next string,
	read func(cursor string) (rows []T, next string, err error), format func(io.Writer) func([]T) error,
) *exportOutput {
	return &exportOutput{ContentType: mediaType, Body: func(c huma.Context) {
		for write := format(c.BodyWriter()); ; {
			extend(c.BodyWriter())
			s.abortOn(ctx, write(rows))
			if next == "" {
				return
			}
			var err error
			rows, next, err = read(next)
			s.abortOn(ctx, err)
		}
	}}
}

// extend gives the next page of an export its own time.
func extend(w io.Writer) {
	if rw, ok := w.(http.ResponseWriter); ok {
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(responseTimeout)) // a writer without deadlines is a test's
	}
}

// abortOn aborts the connection after an error: without an end of the response, the client knows that rows are missing.
func (s *server) abortOn(ctx context.Context, err error) {
	if err != nil {
		s.log.InfoContext(ctx, "export interrupted", "requestId", callOf(ctx).requestID, "error", err)
		panic(http.ErrAbortHandler)
	}
}

func writeNDJSON[T any](w io.Writer) func([]T) error {
	out := json.NewEncoder(w)
	return func(rows []T) error {
		for _, row := range rows {
			if err := out.Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
}

// acceptedType returns the offered type that an Accept header prefers (RFC 9110, section 12.5.1): that of the highest quality, and of
// several the first in the header, named ones before those of a range such as */*. It returns JSON where the header accepts none.
func acceptedType(header string, offered ...string) string {
	best, highest := echo.MIMEApplicationJSON, 0.0
	offered = append([]string{echo.MIMEApplicationJSON}, offered...)
	for _, accepted := range strings.Split(header, ",") {
		name, params, err := mime.ParseMediaType(accepted)
		quality := 1.0
		if q, given := params["q"]; given && err == nil {
			quality, err = strconv.ParseFloat(q, 64)
		}
		if prefix, isRange := strings.CutSuffix(name, "*"); isRange {
			quality -= 0.0005 // qualities have three digits
			prefix = strings.TrimPrefix(prefix, "*/")
			if i := slices.IndexFunc(offered, func(t string) bool { return strings.HasPrefix(t, prefix) }); i >= 0 {
				name = offered[i]
			}
		}
		if err == nil && quality > highest && slices.Contains(offered, name) {
			best, highest = name, quality
		}
	}
	return best
}
