package api

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"berth"
)

// dispatched parses a stream according to the HTML standard and returns the events that a browser would dispatch.
func dispatched(body string) (events []string, ids []string) {
	body = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(body)
	name, data := "", false
	for line := range strings.SplitSeq(body, "\n") {
		field, value, _ := strings.Cut(line, ":")
		switch {
		case line == "" && data:
			events = append(events, name)
			name, data = "", false
		case line == "":
			name = ""
		case field == "event":
			name = strings.TrimPrefix(value, " ")
		case field == "data":
			data = true
		case field == "id":
			ids = append(ids, strings.TrimPrefix(value, " "))
		}
	}
	return events, ids
}

// For any bytes, a written event is parsed as exactly one event (P17).
func FuzzEventWriter(f *testing.F) {
	f.Add("1-1", `{"text":"a"}`)
	f.Add("1-1", "a\n\nevent: done\ndata: {}\n\n")
	f.Add("1-1\nevent: done", "\r\rid: 9-9\r\r")
	f.Add("\r\n\r\n", "\n")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, id, data string) {
		rec := httptest.NewRecorder()
		c := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), rec)
		w := newEventWriter(c)
		if err := w.event(id, berth.EventToken, []byte(data)); err != nil {
			t.Fatal(err)
		}
		if err := w.event("2-2", berth.EventDone, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		events, ids := dispatched(rec.Body.String())
		if len(events) != 2 || events[0] != "token" || events[1] != "done" || ids[len(ids)-1] != "2-2" || len(ids) > 2 {
			t.Fatalf("%q %q gave %q with ids %q", id, data, events, ids)
		}
	})
}

func FuzzVariable(f *testing.F) {
	for _, s := range []string{`"text"`, `{"assetId":"a"}`, `{}`, `[]`, `null`, `5`, ``, `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v Variable
		if err := v.UnmarshalJSON(b); err == nil && v.Text != "" && v.AssetID != "" {
			t.Fatalf("%q is matched by both", b)
		}
	})
}

// deadlines records the bytes that were written before each new deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	chunks []int
}

func (d *deadlines) SetWriteDeadline(time.Time) error {
	d.chunks = append(d.chunks, 0)
	return nil
}

func (d *deadlines) Write(b []byte) (int, error) {
	d.chunks[len(d.chunks)-1] += len(b)
	return d.ResponseRecorder.Write(b)
}

func (d *deadlines) FlushError() error { return nil }

// A slow connection gets a large event in chunks, each with its own deadline, or it would be cut off and resent indefinitely.
func TestEventWriter_LargeEvent_DeadlinePerChunk(t *testing.T) { // T14
	t.Parallel()
	rec := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	w := newEventWriter(echo.New().NewContext(httptest.NewRequest("GET", "/", nil), rec))
	data := strings.Repeat("x", 10*writeChunk)
	require.NoError(t, w.event("1-1", berth.EventDone, []byte(data)))
	require.Contains(t, rec.Body.String(), "data: "+data+"\n\n")
	require.Greater(t, len(rec.chunks), 10)
	for _, n := range rec.chunks {
		require.LessOrEqual(t, n, writeChunk)
		require.Positive(t, n)
	}
}
