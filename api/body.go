package api

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// maxDiscard bounds how much is read of a body after its request was refused.
const maxDiscard = 64 << 20

// watchedBody is the body of a request, of which it is known whether it was read to its end.
type watchedBody struct {
	io.ReadCloser
	began bool
	ended bool // by its end or an error
}

// watchBody replaces the body of a request; nil for a request without one.
func watchBody(req *http.Request) *watchedBody {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	b := &watchedBody{ReadCloser: req.Body}
	req.Body = b
	return b
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.began = true
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

// unread reports whether the client may still send.
func (b *watchedBody) unread() bool { return b != nil && !b.ended }

// discard reads the rest of a body whose request was refused. The response is sent before: a client that reads none until it has sent
// everything would find the connection closed by the server instead. One that waits for 100 Continue sends nothing.
func (s *server) discard(c echo.Context, body *watchedBody) {
	req := c.Request()
	held := body.unread() && !body.began && strings.EqualFold(req.Header.Get("Expect"), "100-continue")
	if !body.unread() || held || req.ContentLength > maxDiscard {
		return
	}
	rc := http.NewResponseController(c.Response().Writer)
	if rc.Flush() != nil || rc.SetReadDeadline(time.Now().Add(s.Config.BodyTimeout)) != nil { // only writers of tests have neither
		return
	}
	_, _ = io.CopyN(io.Discard, body, maxDiscard) // the connection is closed in any case
}
