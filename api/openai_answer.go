package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/gateway"
	"berth/lua"
)

const (
	// commentEvery is the minimum time between two comments with a position.
	commentEvery = time.Second
	// stopCalls is how long calls of a process that stops may take to end, a second less than all of its requests.
	stopCalls = 4 * time.Second
)

// errStopping ends the calls of a process that stops.
var errStopping = berth.Errorf(berth.CodeInterrupted, "the server is stopping: its answer is not complete")

// answering is a response to a client that waits for a call.
type answering struct {
	s      *server
	out    *answerWriter
	stream bool
	ahead  int // -1 while the call does not wait
	// since and from are when the call was first seen to wait, and how many calls were ahead then.
	since     time.Time
	from      int
	commented time.Time
}

// answerCall makes a call and sends its answer.
func (s *server) answerCall(c echo.Context, call gateway.Call, run func(context.Context, gateway.Call, gateway.Client) error) error {
	stream := call.LLM.Raw.Stream
	ctx, cancel := callContext(c.Request().Context())
	defer cancel(nil)
	a := &answering{s: s, out: &answerWriter{clientWriter: newClientWriter(c)}, stream: stream, ahead: -1}
	ended := make(chan error, 1)
	// The call is made on a goroutine of its own, which writes the answer. While the call waits, or its provider is silent, this one writes comments.
	// The channel is full while either writes.
	writing := make(chan struct{}, 1)
	at := func(do func() error) error {
		select {
		case writing <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		defer func() { <-writing }()
		err := do()
		if err != nil {
			cancel(fmt.Errorf("the client does not read: %w", err))
		}
		return err
	}
	go func() {
		ended <- rescued(func() error {
			return run(ctx, call, gateway.Client{
				Admitted: func(r lua.AdmitReply) {
					_ = at(func() error { setLimits(c.Response().Header(), r, call.Limits); return nil }) // fails if the client has left
				},
				Position: func(ahead int) {
					_ = at(func() error { return a.position(ahead) }) // as above
				},
				Object: func(object []byte) error { return at(func() error { return a.object(object) }) },
			})
		})
	}()
	withheld := time.NewTimer(s.Config.CallHold)
	defer withheld.Stop()
	tick := time.NewTicker(min(commentEvery, s.Config.HeartbeatInterval))
	defer tick.Stop()
	for {
		select {
		case <-withheld.C:
			if stream {
				_ = at(a.comment) // it ends the call if it fails
			}
		case <-tick.C:
			_ = at(a.quiet) // as above
		case err := <-ended:
			return a.end(ctx, err)
		}
	}
}

// callContext returns a context that ends with the request, or some seconds after the server has begun to stop.
func callContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	drain, ok := ctx.Value(drainKey{}).(context.Context)
	ctx, cancel := context.WithCancelCause(ctx)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(drain, func() {
		select {
		case <-time.After(stopCalls):
			cancel(errStopping)
		case <-ctx.Done():
		}
	})
	return ctx, func(err error) { stop(); cancel(err) }
}

// position records how many calls are ahead.
func (a *answering) position(ahead int) error {
	now := time.Now()
	if a.ahead < 0 {
		a.since, a.from = now, ahead
	}
	a.ahead = ahead
	if !a.stream || !a.out.opened || now.Sub(a.commented) < commentEvery {
		return nil
	}
	return a.comment()
}

// comment tells a client that reads a stream why nothing comes, and keeps proxies from closing the connection.
func (a *answering) comment() error {
	a.commented = time.Now()
	text := ": the model is called\n\n"
	if a.ahead >= 0 {
		text = fmt.Sprintf(": waiting, %d ahead%s\n\n", a.ahead, a.estimate())
	}
	return a.out.send(text)
}

// estimate returns when the call may have its slot, by the pace at which it has moved up.
func (a *answering) estimate() string {
	moved, took := a.from-a.ahead, time.Since(a.since)
	if moved <= 0 || took < commentEvery {
		return ""
	}
	return fmt.Sprintf(", about %d s", seconds(took/time.Duration(moved)*time.Duration(a.ahead+1)))
}

// quiet sends a comment if nothing was sent on a stream for some time. An answer that is not a stream is complete once it has begun, also while the call
// is being settled.
func (a *answering) quiet() error {
	if !a.stream || !a.out.opened || time.Since(a.out.written) < a.s.Config.HeartbeatInterval {
		return nil
	}
	return a.comment()
}

// object sends an object of the answer.
func (a *answering) object(object []byte) error {
	if a.stream {
		return a.out.data(object)
	}
	return a.out.whole(object)
}

// end ends the response.
func (a *answering) end(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStopping) {
		err = cause
	}
	switch {
	case !a.out.opened:
		return err
	case err == nil && a.stream:
		err = a.out.send("data: [DONE]\n\n")
	case err != nil && a.stream && ctx.Err() == nil || errors.Is(err, errStopping):
		failed := a.s.openAIError(err, callOf(ctx).requestID)
		a.s.log.InfoContext(ctx, "answer interrupted", "requestId", callOf(ctx).requestID, "code", failed.Code, "error", err)
		err = a.out.data(failed.Body())
	}
	if err != nil {
		a.s.log.DebugContext(ctx, "answer not sent", "requestId", callOf(ctx).requestID, "error", err)
	}
	return nil
}

// answerWriter writes the answer of a call to its client.
type answerWriter struct {
	clientWriter

	buf    []byte
	opened bool
}

// open sends the headers of a stream, once.
func (w *answerWriter) open() {
	if w.opened {
		return
	}
	w.opened = true
	shrinkWriteBuffer(w.c.Request().Context())
	h := w.c.Response().Header()
	h.Set(echo.HeaderContentType, "text/event-stream; charset=utf-8")
	h.Set(echo.HeaderCacheControl, "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.c.Response().WriteHeader(http.StatusOK)
}

// data sends an object, which is on one line, as an event.
func (w *answerWriter) data(object []byte) error {
	w.open()
	w.buf = append(append(append(w.buf[:0], "data: "...), object...), "\n\n"...)
	err := w.write(w.buf)
	if cap(w.buf) > maxKeptBuffer {
		w.buf = nil
	}
	return err
}

func (w *answerWriter) send(text string) error {
	w.open()
	return w.write([]byte(text))
}

// whole sends an answer that is not a stream.
func (w *answerWriter) whole(object []byte) error {
	w.opened = true
	h := w.c.Response().Header()
	h.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	h.Set(echo.HeaderContentLength, strconv.Itoa(len(object)))
	w.c.Response().WriteHeader(http.StatusOK)
	return w.write(object)
}
