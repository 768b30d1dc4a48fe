package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/openai"
	"berth/internal/pause"
	"berth/internal/stream"
	"berth/internal/waiting"
	"berth/lua"
)

const (
	// lossWithin is how long a retry waits until the loss of its client's earlier connection is noted.
	lossWithin = 4 * time.Second
	// unsureFor is how long a call of which it is not known whether it was accepted waits for a retry of its client.
	unsureFor = time.Minute
	// rememberClient is how long a call knows its last client.
	rememberClient = time.Hour
	// maxRestarts is how often a call begins again because the one that it joined was cancelled.
	maxRestarts = 3
	// leaveTimeout bounds the note that a client has left: without it, the call is abandoned as late as that of a killed process.
	leaveTimeout = 2 * time.Second
	// abandonedEvery is how often abandoned calls are looked for, abandonedBatch how many together, and abandonedFor how long no other process gets
	// them.
	abandonedEvery = 500 * time.Millisecond
	abandonedBatch = 100
	abandonedFor   = 10 * time.Second
	// quiet is how long a call waits for an event before it looks whether its stream still exists.
	quiet = 15 * time.Second
)

// Request is a request for a durable call.
type Request struct {
	Call

	Body []byte // of the request, as the client has sent it
	// Stream: the client reads the answer as it comes.
	Stream bool
	// Response is set for a response: its answer are events, each on a line. One in the background continues without a client.
	Response *berth.ResponseCall
	// Retention is how long the request and the answer are kept.
	Retention berth.KeyRetention
	// Key is the Idempotency-Key of the client: requests with the same one are one call. Attempts is how often it has sent the request before, by its own
	// account: a retry joins the call of an equal request whose client was lost.
	Key      string
	Attempts int
	// IDPrefix begins the id of the call.
	IDPrefix string
	// RequestID and TraceID are those of the task.
	RequestID, TraceID string
}

// Starter runs workflows; *starter.Starter is one.
type Starter interface {
	SubmitTask(ctx context.Context, plan berth.TaskPlan) (task berth.Task, replay bool, err error)
	CancelTask(ctx context.Context, task berth.TaskRef) error
}

// Hub returns readers of event streams; *stream.Hub is one.
type Hub interface {
	Subscribe(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*stream.Reader, error)
}

// MakeDurable makes a call by a workflow and passes its answer to the client. The call continues if ctx ends or this process dies: until Options.Grace has
// passed without a client, in which a retry of the client joins it. Of one in the background that does not stream, only the start is awaited. Errors
// are those of Make, and *openai.Error for the end of a call.
func (g *Gateway) MakeDurable(ctx context.Context, r Request, client Client) error {
	for restarts := 0; ; restarts++ {
		d := &durable{Gateway: g, Request: r, client: client, after: -1}
		joined, err := d.make(ctx)
		if !joined || d.passed > 0 || restarts == maxRestarts || berth.CodeOf(err) != berth.CodeCancelled || ctx.Err() != nil {
			return err
		}
	}
}

// durable is a request whose call a workflow makes.
type durable struct {
	*Gateway
	Request
	client   Client
	plan     berth.TaskPlan
	attended lua.CallClient
	replayed bool // an earlier request was accepted with the same id
	// passed is the size of what the client has got, in bytes of the answer as it is stored, and total that of what was read. rest is behind the last
	// whole line. lost is set if something of the stream is missing: the client gets it from the stored answer.
	passed, total int
	at            int // in the stream since it began
	rest          []byte
	lost          bool
	// Of a response: next is the number of the next event, and the client has those up to after. Text of attempts before fence is not a part of
	// the answer: foreign is set until one from there on is seen.
	next, after int
	fence       int64
	foreign     bool
}

// make starts the call, or joins one, and passes on the answer.
func (d *durable) make(ctx context.Context) (joined bool, err error) {
	if d.plan, err = d.newPlan(); err != nil {
		return false, err
	}
	d.attended = lua.CallClient{Process: d.Process, ID: berth.NewID(""), Attempts: d.Attempts, Grace: d.Grace, Keep: rememberClient}
	if joined, err = d.join(ctx); err != nil {
		return joined, err
	}
	if !joined {
		d.attended.Call = d.plan.Ref()
		if err := d.attend(ctx, lua.ClientJoins); err != nil {
			return false, err
		}
	}
	stop := d.stay(ctx)
	ended, err := d.answer(ctx, joined)
	stop(ended || d.background() && (err == nil || d.next > 0)) // whose client knows the response needs no retry
	return joined, err
}

func (d *durable) background() bool { return d.Response != nil && d.Response.Background }

// answer starts the call unless it has joined one, and passes on the answer. It reports whether the call has ended.
func (d *durable) answer(ctx context.Context, joined bool) (ended bool, err error) {
	if !joined {
		if err := d.start(ctx); err != nil {
			return berth.CodeOf(err) != berth.CodeUnavailable && berth.CodeOf(err) != berth.CodeInternal, err
		}
	}
	if joined {
		if err := d.confirm(ctx); err != nil {
			return false, err
		}
	}
	if d.Response != nil {
		if err := d.accepted(ctx, joined); err != nil {
			return false, err
		}
	}
	switch {
	case d.Stream:
	case d.background():
		return true, nil
	default: // nothing can be sent while it waits
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d.Wait, ErrWaitedTooLong)
		defer stop()
	}
	return d.follow(ctx)
}

// confirm waits until the call that the client has joined is accepted: as long as it is not, its row may be withdrawn. If it was, the call is accepted
// now.
func (d *durable) confirm(ctx context.Context) error {
	task, found, err := berth.Found(d.Tasks.GetTask(ctx, d.plan.Ref()))
	if err == nil && (!found || task.Status == berth.TaskPending) {
		_, _, err = d.Starter.SubmitTask(ctx, d.plan)
	}
	return err
}

// accepted tells the client which response it gets. One that was accepted for an earlier request may differ from the plan.
func (d *durable) accepted(ctx context.Context, joined bool) error {
	if joined || d.replayed {
		task, err := d.Tasks.GetTask(ctx, d.plan.Ref())
		if err != nil {
			return err
		}
		d.plan = task.TaskPlan
	}
	d.client.Accepted(d.plan)
	return nil
}

// newPlan returns the plan of a call of its own.
func (d *durable) newPlan() (berth.TaskPlan, error) {
	call, err := d.Models.Prepare(d.LLM)
	if err != nil {
		return berth.TaskPlan{}, err
	}
	d.LLM = call
	name, operation := berth.TemplateChat, "chat"
	if d.Response != nil {
		name, operation = berth.TemplateResponse, "responses"
	}
	hash := berth.DerivedID("", d.UserID, operation, string(d.Body))
	return berth.TaskPlan{
		TaskRequest: berth.TaskRequest{
			ID: d.ID, ServiceID: d.ServiceID, Group: d.Group, Template: name, Locale: berth.LocaleEN, Tier: berth.TierPaid,
			Variables: map[string]string{berth.VariableRequest: ledger.AssetID(d.UserID, berth.AssetText, d.Body)},
			RequestID: d.RequestID, TraceID: d.TraceID,
		},
		UserID: d.UserID,
		Steps: []berth.Step{{
			Name: berth.StepChat, Mode: berth.ModeStream, Queue: d.Queue, Model: d.LLM.Model, Status: berth.TaskPending,
		}},
		RequestHash: hash, Price: d.Catalog(d.LLM.Model).ReserveCall(d.LLM), Metered: true,
		Forwarded: &berth.Forwarded{
			KeyID: d.KeyID, Stream: d.Stream, Created: d.LLM.Raw.Shown.Created, ServiceTier: d.LLM.Raw.Shown.ServiceTier,
			Conversation: d.Conversation, Retention: d.Retention, Response: d.Response,
		},
	}, nil
}

// join finds the call that the request repeats, and makes this client that of the call.
func (d *durable) join(ctx context.Context) (joined bool, err error) {
	if d.Key != "" {
		return d.joinByKey(ctx)
	}
	if d.Attempts == 0 {
		return false, nil
	}
	if id, unsure, err := d.Scripts.TakeSubmission(ctx, d.UserID, d.plan.RequestHash); unsure || err != nil {
		d.plan.ID = cmp.Or(id, d.plan.ID) // it is submitted again, which starts it or joins it
		return false, redisUnavailable(err)
	}
	found, err := d.Tasks.ForwardedTasks(ctx, d.UserID, d.plan.RequestHash)
	if err != nil {
		return false, err
	}
	for until := time.Now().Add(lossWithin); ; {
		connected := false
		for _, task := range found {
			d.attended.Call = task
			switch code, err := d.Scripts.AttendCall(ctx, d.attended, lua.ClientFollows); {
			case err != nil:
				return false, redisUnavailable(err)
			case code == lua.CallAttended:
				d.plan.ID = task.TaskID
				return true, nil
			case code == lua.CallConnected:
				connected = true
			}
		}
		if !connected || time.Now().After(until) || !pause.For(ctx, lossWithin/20) {
			return false, context.Cause(ctx)
		}
	}
}

func (d *durable) joinByKey(ctx context.Context) (known bool, err error) {
	p := &d.plan
	p.Key = berth.DerivedID("k_", "openai", d.Key)
	newest, found, err := berth.Found(d.Tasks.FindSubmission(ctx, p.UserID, p.Key))
	switch {
	case err != nil:
		return false, err
	case found && newest.RequestHash != p.RequestHash:
		return false, &berth.Error{
			Code: berth.CodeIdempotencyMismatch, Field: "Idempotency-Key", Message: "already used for a different request: send each request with a key of its own",
		}
	}
	p.Number, known = newest.Next(false)
	p.ID = p.KeyedID(d.IDPrefix)
	if !known {
		return false, nil
	}
	d.attended.Call = p.Ref()
	return true, d.attend(ctx, lua.ClientJoins)
}

func (d *durable) attend(ctx context.Context, event lua.ClientEvent) error {
	_, err := d.Scripts.AttendCall(ctx, d.attended, event)
	return redisUnavailable(err)
}

func redisUnavailable(err error) error {
	if err != nil {
		err = berth.Errorf(berth.CodeUnavailable, "Redis is unavailable; retry later").With(err)
	}
	return err
}

// stay tells the others that the client waits, until the function that it returns is called, with whether the call has ended.
func (d *durable) stay(ctx context.Context) (stop func(ended bool)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for pause.For(ctx, d.Grace/3) {
			if err := d.attend(ctx, lua.ClientWaits); err != nil {
				d.Logger.DebugContext(ctx, "waiting client not noted", "call", d.plan.ID, "error", err)
			}
		}
	}()
	return func(ended bool) {
		cancel()
		<-stopped
		event := lua.ClientLeaves
		if ended {
			event = lua.ClientEnds
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if err := d.attend(ctx, event); err != nil {
			d.Logger.DebugContext(ctx, "end of a client not noted", "call", d.plan.ID, "error", err)
		}
	}
}

// start admits the call, stores its request and starts the workflow, which reserves what the call may cost.
func (d *durable) start(ctx context.Context) error {
	unpolled, err := d.Scripts.CheckPollers(ctx, []string{berth.ModelTaskQueue(d.LLM.Model)})
	if err != nil {
		return redisUnavailable(err)
	}
	if len(unpolled) > 0 {
		return berth.Errorf(berth.CodeNotServed, "no worker serves the model %s; retry later", d.LLM.Model)
	}
	own := d.Call
	own.ID = d.plan.ID
	reply, err := d.admitted(ctx, own)
	if err != nil {
		return err
	}
	if _, err = d.Tasks.PutAsset(ctx, berth.Asset{UserID: d.UserID, Kind: berth.AssetText, MediaType: berth.JSONMediaType, Content: d.Body}); err == nil {
		_, d.replayed, err = d.Starter.SubmitTask(ctx, d.plan)
	}
	if err != nil {
		if code := berth.CodeOf(err); code != berth.CodeUnavailable && code != berth.CodeInternal {
			d.withdraw(ctx, own)
		} else if kept := d.Scripts.KeepSubmission(ctx, d.plan.Ref(), d.plan.RequestHash, unsureFor); kept != nil {
			d.Logger.DebugContext(ctx, "call that may have been accepted not kept", "call", d.plan.ID, "error", kept)
		}
		return err
	}
	d.client.Admitted(reply)
	return nil
}

// follow passes on the answer as it comes. ended reports whether the call has ended and the client has its end.
func (d *durable) follow(ctx context.Context) (ended bool, err error) {
	watch := d.Positions.Watch()
	defer watch.Close()
	watch.Expect([]lua.ModelWaiter{lua.ModelWaiterOf(d.plan.Ref(), d.plan.Group, 0, d.plan.Steps[0])})
	ch := lua.Channel{UserID: d.plan.UserID, ServiceID: d.plan.ServiceID, TaskID: d.plan.ID}
	after := ""
	for backoff := pause.NewBackoff(firstPause/5, longestPause); ; {
		reader, err := d.Streams.Subscribe(ctx, ch, after, false)
		if err == nil {
			after, err = d.read(ctx, reader, watch, after)
			reader.Close()
		}
		var failed *clientError
		switch {
		case err == nil:
			return d.end(ctx)
		case errors.As(err, &failed):
			return false, failed.error
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, stream.ErrClosed):
			return false, berth.Errorf(berth.CodeUnavailable, "the server is stopping; a retry continues the call").With(err)
		}
		// Without its stream, the row of the task has its end.
		task, err := d.Tasks.GetTask(ctx, d.plan.Ref())
		if err == nil && task.Status.Final() {
			return d.end(ctx)
		}
		if !backoff.Wait(ctx) {
			return false, context.Cause(ctx)
		}
	}
}

// clientError is an error of the client.
type clientError struct{ error }

// read passes on the events of a stream; nil once the task has ended. It returns the id of the last event.
func (d *durable) read(ctx context.Context, reader *stream.Reader, watch *waiting.Watch, after string) (string, error) {
	waits, ahead := true, -1
	for checked := time.Now(); ; {
		item, err := reader.Next(ctx, waiting.PositionEvery)
		if p := watch.Position(); waits && p != nil && p.Position >= 0 && p.Position != ahead {
			ahead = p.Position
			d.client.Position(ahead)
		}
		switch {
		case errors.Is(err, io.EOF):
			return after, nil
		case errors.Is(err, stream.ErrQuiet):
			if time.Since(checked) < quiet {
				continue
			}
			checked = time.Now()
			if err := reader.Check(ctx); errors.Is(err, stream.ErrAbsent) {
				return after, err
			}
			continue
		case err != nil:
			return after, err
		}
		if item.ID != "" {
			after = item.ID
		}
		switch item.Event {
		case berth.EventToken, berth.EventTokenBatch, berth.EventReset, berth.EventGap:
			if err := d.text(item); err != nil {
				return after, err
			}
		case berth.EventStart:
			waits = false
			d.client.Position(-1)
		default:
			if item.Event.Terminal() {
				return after, nil
			}
		}
	}
}

// text passes on the lines of an event. After a reset, the text of the stream begins again, and what the client has is left out.
func (d *durable) text(item stream.Item) error {
	var ev berth.Event
	if err := json.Unmarshal(item.Data, &ev); err != nil {
		return fmt.Errorf("event %s: %w", item.ID, err)
	}
	switch item.Event {
	case berth.EventReset:
		d.at, d.lost = 0, false
		d.foreign = d.foreign && ev.Attempt < d.fence
		return nil
	case berth.EventGap:
		d.lost = true
		return nil
	}
	if d.foreign || !d.Stream {
		return nil
	}
	from := min(max(0, d.total-d.at), len(ev.Text))
	d.at += len(ev.Text)
	if d.lost || from == len(ev.Text) {
		return nil
	}
	d.total = d.at
	return d.lines([]byte(ev.Text[from:]))
}

// lines passes on the whole lines of a text.
func (d *durable) lines(text []byte) error {
	d.rest = append(d.rest, text...)
	for {
		line, rest, whole := bytes.Cut(d.rest, []byte("\n"))
		if !whole {
			return nil
		}
		d.passed += len(line) + 1
		d.rest, d.next = rest, d.next+1
		if d.next-1 <= d.after {
			continue
		}
		if err := d.client.Object(line); err != nil {
			return &clientError{err}
		}
	}
}

// end passes on what the client does not have of the answer, or returns why there is none.
func (d *durable) end(ctx context.Context) (ended bool, err error) {
	task, err := d.Tasks.GetTask(ctx, d.plan.Ref())
	if err != nil {
		return false, err
	}
	switch {
	case task.Status == berth.TaskCompleted:
	case d.Response != nil && d.Stream && (d.passed > 0 || d.background()):
		if task, err = d.stored(ctx, task); err != nil {
			return false, err
		}
	case task.Status == berth.TaskFailed:
		return true, openai.ErrorOfTask(task)
	default:
		return true, berth.Errorf(berth.CodeCancelled, "the call was cancelled")
	}
	result, err := d.Tasks.GetAsset(ctx, task.UserID, task.ResultAssetID)
	if err != nil {
		return false, err
	}
	content := result.Content
	switch {
	case !d.Stream:
		return true, d.client.Object(content)
	case d.passed <= len(content):
		content = content[d.passed:]
	case d.Response != nil: // the process that had all of it was lost while Redis had lost it
		content = append(last(content), '\n')
	default:
		return true, berth.Errorf(berth.CodeInternal, "the stored answer is shorter than what was sent")
	}
	d.rest = nil
	if err = d.lines(content); err == nil && d.next-1 < d.after { // as above: the client has more than is stored, but not the end
		err = d.client.Object(last(result.Content))
	}
	var failed *clientError
	if errors.As(err, &failed) {
		return false, failed.error
	}
	return true, err
}

// last returns the last line of a text.
func last(text []byte) []byte {
	text = bytes.TrimSuffix(text, []byte("\n"))
	return bytes.Clone(text[bytes.LastIndexByte(text, '\n')+1:])
}

// stored returns the task of a response that did not complete once its events are stored, which follows its end.
func (d *durable) stored(ctx context.Context, task berth.Task) (berth.Task, error) {
	for backoff := pause.NewBackoff(firstPause/5, longestPause); task.ResultAssetID == ""; {
		if !backoff.Wait(ctx) {
			return task, context.Cause(ctx)
		}
		var err error
		if task, err = d.Tasks.GetTask(ctx, task.Ref()); err != nil {
			return task, err
		}
		if !task.ContentErasedAt.IsZero() {
			return task, berth.Errorf(berth.CodeErased, "the response was deleted")
		}
	}
	return task, nil
}

// FollowResponse passes the events of a response to a client, from the one after the number that it has, -1 for all. Nothing happens to the response
// if the client leaves.
func (g *Gateway) FollowResponse(ctx context.Context, response berth.TaskRef, after int, client Client) error {
	task, err := g.Tasks.FollowResponse(ctx, response)
	if err != nil {
		return err
	}
	d := &durable{Gateway: g, client: client, plan: task.TaskPlan, after: after, fence: task.Fence, foreign: task.Fence > 1}
	d.Stream, d.Response = true, &berth.ResponseCall{Background: true}
	client.Accepted(d.plan)
	if task.Status.Final() {
		_, err = d.end(ctx)
	} else {
		_, err = d.follow(ctx)
	}
	return err
}

// CancelAbandoned cancels the calls for which no client has waited for the time of grace, until ctx ends, and states that this process runs. Every API
// process does so.
func (g *Gateway) CancelAbandoned(ctx context.Context) error {
	for began := time.Now(); pause.For(ctx, abandonedEvery); {
		if err := g.Scripts.MarkRunning(ctx, g.Process); err != nil {
			g.Logger.DebugContext(ctx, "running process not noted", "error", err)
		}
		if time.Since(began) < g.Grace { // clients that have lost this process are about to return
			continue
		}
		calls, err := g.Scripts.TakeAbandonedCalls(ctx, abandonedBatch, abandonedFor)
		if err != nil {
			g.Logger.DebugContext(ctx, "abandoned calls not read", "error", err)
		}
		for _, call := range calls {
			err := g.cancelAbandoned(ctx, call)
			if code := berth.CodeOf(err); err != nil && code != berth.CodeConflict && code != berth.CodeNotFound {
				g.Logger.WarnContext(ctx, "abandoned call not cancelled; retrying", "call", call.TaskID, "error", err)
				continue
			}
			if _, err := g.Scripts.TakeAbandonedCalls(ctx, 0, abandonedFor, call); err != nil {
				g.Logger.DebugContext(ctx, "abandoned call not removed", "call", call.TaskID, "error", err)
			}
		}
	}
	return nil
}

// cancelAbandoned cancels a call that no client waits for, unless it is that of a response that continues without clients.
func (g *Gateway) cancelAbandoned(ctx context.Context, call berth.TaskRef) error {
	task, err := g.Tasks.GetTask(ctx, call)
	if err != nil {
		return err
	}
	if r := task.Response(); r != nil && r.Alone() {
		return nil
	}
	if err := g.Starter.CancelTask(ctx, call); err != nil {
		return err
	}
	g.Logger.InfoContext(ctx, "call cancelled: its client has left", "call", call.TaskID, "user", call.UserID)
	return nil
}
