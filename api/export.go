package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
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

// acceptedType returns the first of the types that an Accept header names; empty when it names none.
func acceptedType(header string, types ...string) string {
	for _, accepted := range strings.Split(header, ",") {
		mediaType, _, _ := strings.Cut(accepted, ";")
		for _, t := range types {
			if strings.EqualFold(strings.TrimSpace(mediaType), t) {
				return t
			}
		}
	}
	return ""
}
