package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/gateway"
	"berth/internal/openai"
	"berth/internal/responses"
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
	// response is set if the answer is that of a response, nil for a chat.
	response *responding
	// since and from are when the call was first seen to wait, and how many calls were ahead then.
	since     time.Time
	from      int
	commented time.Time
}

// responding is how the answer of a response is sent.
type responding struct {
	request *responses.Request
	// head are the events with which it begins, from the one after the number that the client has. One that waits gets them before there is an
	// answer; sent is how many.
	head  [][]byte
	after int
	sent  int
	// early: the client gets the head as soon as the call is accepted.
	early bool
	last  []byte // event that was sent
}

// answerCall makes a call and sends its answer, as a stream or whole.
func (s *server) answerCall(c echo.Context, limits lua.AdmissionLimits, stream bool, as *responding, run func(context.Context, gateway.Client) error) error {
	ctx, cancel := callContext(c.Request().Context())
	defer cancel(nil)
	a := &answering{s: s, out: &answerWriter{clientWriter: newClientWriter(c)}, stream: stream, ahead: -1, response: as}
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
			return run(ctx, gateway.Client{
				Admitted: func(r lua.AdmitReply) {
					_ = at(func() error { setLimits(c.Response().Header(), r, limits); return nil }) // fails if the client has left
				},
				Accepted: func(plan berth.TaskPlan) {
					_ = at(func() error { return a.accepted(plan) }) // as above
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
				_ = at(a.begin) // it ends the call if it fails
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

// accepted notes which response the client gets.
func (a *answering) accepted(plan berth.TaskPlan) error {
	r := a.response
	head := headOf(r.request, plan)
	r.head = head[min(r.after, len(head)-1)+1:]
	switch {
	case !r.early:
		return nil
	case a.stream:
		return a.begin()
	default:
		return a.out.whole(responses.Final(head[0]))
	}
}

// begin begins a stream before there is an answer.
func (a *answering) begin() error {
	if r := a.response; r != nil {
		for _, event := range r.head {
			if err := a.event(event); err != nil {
				return err
			}
		}
		r.head, r.sent = nil, r.sent+len(r.head)
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
	r := a.response
	switch {
	case r == nil && a.stream:
		return a.out.data(object)
	case r == nil:
		return a.out.whole(object)
	case !a.stream:
		return a.out.whole(responses.Final(object))
	case r.sent > 0: // as a part of the head
		r.sent--
		return nil
	}
	r.head = nil
	return a.event(object)
}

// event sends an event of a response.
func (a *answering) event(event []byte) error {
	a.response.last = event
	return a.out.event(gjson.GetBytes(event, "type").Str, event)
}

// interrupted tells a client that the rest of a stream does not come on this connection.
func (a *answering) interrupted(failed *openai.Error) error {
	if a.response == nil {
		return a.out.data(failed.Body())
	}
	// It is not one of the response: the next number is that of another one, which a client that continues gets.
	number := max(0, int64(a.response.after))
	if a.response.last != nil {
		number = gjson.GetBytes(a.response.last, "sequence_number").Int()
	}
	event, err := json.Marshal(map[string]any{
		"type": "error", "code": failed.Code, "message": failed.Message, "param": nil, "sequence_number": number,
	})
	if err != nil {
		return err
	}
	return a.out.event("error", event)
}

// end ends the response.
func (a *answering) end(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStopping) {
		err = cause
	}
	switch {
	case !a.out.opened:
		return err
	case err == nil && a.stream && a.response == nil:
		err = a.out.send("data: [DONE]\n\n")
	case err != nil && a.stream && ctx.Err() == nil || errors.Is(err, errStopping):
		failed := a.s.openAIError(err, callOf(ctx).requestID)
		a.s.log.InfoContext(ctx, "answer interrupted", "requestId", callOf(ctx).requestID, "code", failed.Code, "error", err)
		err = a.interrupted(failed)
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
func (w *answerWriter) data(object []byte) error { return w.event("", object) }

// event sends an object as an event with a name.
func (w *answerWriter) event(name string, object []byte) error {
	w.open()
	w.buf = w.buf[:0]
	if name != "" {
		w.buf = append(append(append(w.buf, "event: "...), name...), '\n')
	}
	w.buf = append(append(append(w.buf, "data: "...), object...), "\n\n"...)
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
