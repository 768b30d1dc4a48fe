package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/ledger"
	"berth/internal/stream"
	"berth/lua"
)

// streamSeed is the seed of a random run: SEED of the environment, or a new one. The test's log names it.
func streamSeed(tb testing.TB) uint64 {
	tb.Helper()
	seed := rand.Uint64N(1 << 32)
	for _, v := range os.Environ() {
		if text, ok := strings.CutPrefix(v, "SEED="); ok && text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			require.NoError(tb, err, "SEED must be a whole number")
			seed = n
		}
	}
	tb.Logf("SEED=%d", seed)
	return seed
}

// feeder writes tasks and their streams into a stack's stores, as its workers do, without calling any model.
type feeder struct {
	ledger  *ledger.Ledger
	redis   *redis.Client
	scripts *lua.Scripts
	pub     *stream.Publisher
}

// feederName distinguishes a feeder's connections to Redis from those of the stack.
const feederName = "feeder"

func newFeeder(s *stack, o stream.Options) *feeder {
	s.tb.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	l, err := ledger.Open(s.tb.Context(), "sqlite:"+filepath.Join(s.dir, "berth.db"), o.Logger)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { _ = l.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: s.ready.RedisAddr, ClientName: feederName})
	s.tb.Cleanup(func() { _ = rdb.Close() })
	scripts := lua.New(rdb, lua.Keys{})
	return &feeder{ledger: l, redis: rdb, scripts: scripts, pub: stream.NewPublisher(scripts, o)}
}

// create writes the row of an accepted task to the ledger. Its only step streams.
func (f *feeder) create(ctx context.Context, user, id string) (berth.Task, error) {
	task, _, err := f.ledger.CreateTask(ctx, berth.Task{
		TaskPlan: berth.TaskPlan{
			TaskRequest: berth.TaskRequest{
				ID: id, ServiceID: "career", Template: "resume_customize", Locale: berth.LocaleEN,
				Tier: berth.TierPaid, Variables: map[string]string{},
			},
			UserID: user,
			Steps: []berth.Step{{
				Name: "customize", Mode: berth.ModeStream,
				Queue: berth.Queue("q_paid_stream"), Model: "deepseek-reasoner",
			}},
		},
		DeadlineAt: time.Now().Add(time.Hour),
	})
	return task, err
}

// begin opens the stream of a created task.
func (f *feeder) begin(ctx context.Context, task berth.Task) (fence int64, err error) {
	attempt, err := f.ledger.BeginAttempt(ctx, task.Ref(), 0, berth.TaskStreaming)
	if err != nil {
		return 0, err
	}
	return attempt.Fence, f.pub.Open(ctx, channel(task), attempt.Fence, task.DeadlineAt)
}

// finish stores the answer and ends row and stream.
func (f *feeder) finish(ctx context.Context, task berth.Task, fence int64, text string) error {
	content, err := json.Marshal(berth.Answer{Text: text})
	if err != nil {
		return err
	}
	output := berth.Asset{Kind: berth.AssetResult, MediaType: berth.AnswerMediaType, Content: content}
	output.ID, err = f.ledger.FinishStep(ctx, ledger.StepResult{
		ModelCall: ledger.ModelCall{
			UserID: task.UserID, TaskID: task.ID, Name: "customize", Fence: fence, Queue: task.Steps[0].Queue, Model: task.Steps[0].Model,
		},
		Output: output,
	})
	if err != nil {
		return err
	}
	task, _, err = f.ledger.FinishTask(ctx, ledger.End{TaskRef: task.Ref(), Status: berth.TaskCompleted, ResultAssetID: output.ID})
	if err != nil {
		return err
	}
	ev, err := berth.TerminalEvent(task, output)
	if err != nil {
		return err
	}
	_, err = f.pub.End(ctx, channel(task), ev)
	return err
}

func channel(t berth.Task) lua.Channel {
	return lua.Channel{UserID: t.UserID, ServiceID: t.ServiceID, TaskID: t.ID}
}

// words are the parts of tokens; some look like the wire format.
var words = []string{
	"Go ", "PostgreSQL, ", "six years", " 熟悉分布式系统", "。", "\n\n", "data: x\n\n", "\r\n", `"quoted" \ `, "🚢", "id: 1-1\n",
}

// stream writes the whole stream of a task, from opening to end: tokens, stages and occasional resets.
func (f *feeder) stream(ctx context.Context, task berth.Task, rng *rand.Rand, tokens int) error {
	fence, err := f.begin(ctx, task)
	if err != nil {
		return err
	}
	w := f.pub.Writer(ctx, channel(task), fence, berth.Event{Stage: berth.StageAnswer}, nil)
	text, again := "", -1
	if rng.IntN(4) == 0 {
		again = rng.IntN(tokens)
	}
	for i := range tokens {
		token := words[rng.IntN(len(words))] + strconv.Itoa(i)
		if err := w.Token(token); err != nil {
			return err
		}
		text += token
		switch {
		case i == again:
			text = ""
			err = w.Event(berth.Event{Type: berth.EventReset, Message: "a new attempt"})
		case rng.IntN(20) == 0:
			err = w.Event(berth.Event{Type: berth.EventStageProgress, Message: token})
		case rng.IntN(10) == 0:
			err = w.Flush(ctx)
		}
		if err != nil {
			return err
		}
	}
	if err := w.Close(ctx); err != nil {
		return err
	}
	return f.finish(ctx, task, fence, text)
}

// frame is one Server-Sent Event as received.
type frame struct {
	id    string
	event berth.EventType
	data  []byte
}

func (f frame) parse() (ev berth.Event, err error) {
	if err := json.Unmarshal(f.data, &ev); err != nil {
		return ev, fmt.Errorf("event %s: %w", f.id, err)
	}
	return ev, nil
}

// readFrame returns the next event. An incomplete event at the end is dropped, as browsers do.
func readFrame(r *bufio.Reader) (f frame, err error) {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return frame{}, err
		}
		line = line[:len(line)-1]
		if len(line) == 0 {
			if f.data != nil {
				return f, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "id":
			f.id = string(value)
		case "event":
			f.event = berth.EventType(value)
		case "data":
			f.data = append(f.data, value...)
		}
	}
}

// listener is one client of one task's stream, on raw connections. It records the events and where to resume.
type listener struct {
	addr, token, task, query string
	// from is its own loopback address, so that thousands of connections do not exhaust the ports of one address.
	from   string
	buffer int // socket buffer in bytes; 0 is the system's default
	last   string
	got    []frame
	wire   io.LimitedReader // remaining bytes of the connection
	body   *bufio.Reader
}

func (s *stack) listener(user, task string) *listener {
	s.tb.Helper()
	return &listener{addr: s.httpAddr, token: s.token(user), task: task, from: "127.0.0.2"}
}

// request returns the HTTP request of a client of the stream.
func (l *listener) request() []byte {
	b := fmt.Appendf(nil, "GET /v1/tasks/%s/events%s HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer %s\r\n", l.task, l.query, l.token)
	if l.last != "" {
		b = fmt.Appendf(b, "Last-Event-ID: %s\r\n", l.last)
	}
	return append(b, "\r\n"...)
}

// dial connects from a loopback address.
func dial(ctx context.Context, from, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", addr)
}

// open connects and reads the response header. The connection ends after limit bytes or with ctx. A response that is not a
// stream is returned with its body.
func (l *listener) open(ctx context.Context, limit int64) (status int, p api.Problem, err error) {
	l.wire = io.LimitedReader{N: limit}
	conn, err := dial(ctx, l.from, l.addr)
	if err != nil {
		return 0, p, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // the cut is intended
	if l.buffer > 0 {
		if err := conn.(*net.TCPConn).SetReadBuffer(l.buffer); err != nil {
			return 0, p, err
		}
	}
	l.wire.R = conn
	if _, err := conn.Write(l.request()); err != nil {
		return 0, p, err
	}
	res, err := http.ReadResponse(bufio.NewReader(&l.wire), nil)
	if err != nil {
		return 0, p, err
	}
	l.body = bufio.NewReader(res.Body)
	if res.StatusCode >= http.StatusBadRequest {
		err = json.NewDecoder(l.body).Decode(&p)
	}
	return res.StatusCode, p, err
}

// next records and returns the next event of the stream. Positions in the queue have no id and are not part of it.
func (l *listener) next() (frame, error) {
	for {
		f, err := readFrame(l.body)
		if err != nil {
			return f, err
		}
		if f.event == berth.EventQueued && f.id == "" {
			continue
		}
		if f.id != "" {
			l.last = f.id
		}
		l.got = append(l.got, f)
		return f, nil
	}
}

// follow reads one connection of limit bytes. over reports whether the terminal event was received. It is an error if the
// server ends the stream before it.
func (l *listener) follow(ctx context.Context, limit int64) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	status, p, err := l.open(ctx, limit)
	if err == nil && status != http.StatusOK {
		return false, fmt.Errorf("answer %d: %s", status, p.Detail)
	}
	for err == nil {
		var f frame
		if f, err = l.next(); err == nil && f.event.Terminal() {
			return true, nil
		}
	}
	if l.wire.N == 0 {
		return false, nil // cut at any point
	}
	return false, fmt.Errorf("after event %q: %w", l.last, err)
}

// unlimited reads a connection to its end.
const unlimited = 1 << 40

// followCut reads the stream to its end over connections that break after a random number of bytes. The number increases each
// time that no event was received, because an event may be longer.
func (l *listener) followCut(ctx context.Context, rng *rand.Rand) (cuts int, err error) {
	for limit := int64(4000); ; cuts++ {
		before := len(l.got)
		over, err := l.follow(ctx, 1+rng.Int64N(limit))
		if over || err != nil {
			return cuts, err
		}
		if limit = min(2*limit, 1<<20); len(l.got) > before {
			limit = 4000
		}
	}
}

// check requires that every event of the stream was received once and in order, and that the tokens are the answer.
func (l *listener) check() error {
	text, gen := "", ""
	for i, f := range l.got {
		ev, err := f.parse()
		if err != nil {
			return err
		}
		g, seq, _ := strings.Cut(f.id, "-")
		if i == 0 {
			gen = g
		}
		if g != gen || seq != strconv.Itoa(i+1) || ev.Type != f.event {
			return fmt.Errorf("task %s: event %d is %s %s", l.task, i+1, f.event, f.id)
		}
		switch {
		case ev.Type == berth.EventReset:
			text = ""
		case ev.Type == berth.EventToken || ev.Type == berth.EventTokenBatch:
			text += ev.Text
		case ev.Type.Terminal() && i != len(l.got)-1:
			return fmt.Errorf("task %s: %s is not the last event", l.task, f.event)
		case ev.Type == berth.EventDone && ev.Text != strings.TrimSpace(text) && ev.Text != text:
			return fmt.Errorf("task %s: the tokens are not the answer: %q, %q", l.task, text, ev.Text)
		}
	}
	if n := len(l.got); n == 0 || l.got[n-1].event != berth.EventDone {
		return fmt.Errorf("task %s: no done event", l.task)
	}
	return nil
}
