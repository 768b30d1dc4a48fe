//go:build faults

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/client"
)

// load is steady work of several users. They send each request to a random API and retry it until they get a definite
// response.
type load struct {
	apis func(user string, scopes ...string) []*client.Client
	seed uint64

	answers  chan answered // of all users
	received chan client.SessionEvent
	retries  atomic.Int64
	met      chan met // conferences
	sent     chan berth.ConferenceEvent
	closing  atomic.Int64      // how often a number's previous run had not ended yet
	leave    func(e164 string) // removes all participants from a conference
	speaking sync.WaitGroup
	readers  sync.WaitGroup
}

// newLoad returns a load on all APIs of the cluster. It keeps most answers of each kind, and ten times as many events.
func newLoad(w *cluster, seed uint64, most int) *load {
	return &load{
		seed: seed, answers: make(chan answered, most), received: make(chan client.SessionEvent, 10*most),
		met: make(chan met, most), sent: make(chan berth.ConferenceEvent, 10*most), leave: w.leave,
		apis: func(user string, scopes ...string) (out []*client.Client) {
			for _, url := range w.urls {
				out = append(out, client.New(url, w.token(user, append(scopes, "user", "node")...)))
			}
			return out
		},
	}
}

// answered is an accepted segment of a turn or an accepted execution, or the reason why the test has failed.
type answered struct {
	turn      string
	index     int
	text      string
	execution string
	err       error
}

// requestWait is how long a segment is retried.
const requestWait = 2 * time.Minute

// refusedFor returns the problem if the request was refused permanently.
func refusedFor(err error) *client.Problem {
	var p *client.Problem
	if errors.As(err, &p) && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests {
		return p
	}
	return nil
}

// insist calls berth through random APIs until one responds.
func insist[T any](l *load, rng *rand.Rand, apis []*client.Client, call func(context.Context, *client.Client) (T, error)) (out T, err error) {
	for until := time.Now().Add(requestWait); ; l.retries.Add(1) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		out, err = call(ctx, apis[rng.IntN(len(apis))])
		cancel()
		if err == nil || refusedFor(err) != nil || time.Now().After(until) {
			return out, err
		}
		<-time.After(time.Duration(50+rng.IntN(300)) * time.Millisecond)
	}
}

// session submits turns of one session until ctx ends, and reads its events until listening ends.
func (l *load) session(ctx, listening context.Context, n uint64) {
	user, id := fmt.Sprintf("user-%d", n), fmt.Sprintf("session-%d", n)
	rng := rand.New(rand.NewPCG(l.seed, n))
	apis := l.apis(user)
	if _, err := insist(l, rng, apis, func(ctx context.Context, c *client.Client) (berth.Session, error) {
		return c.PutSession(ctx, id, client.SessionSpec{SrcLang: "en", TgtLang: "es"})
	}); err != nil {
		l.answers <- answered{err: fmt.Errorf("session %s: %w", id, err)}
		return
	}
	l.readers.Go(func() {
		for ev, err := range apis[n%uint64(len(apis))].FollowSession(listening, id, "", false) {
			if err != nil {
				if listening.Err() == nil {
					l.answers <- answered{err: fmt.Errorf("listener of %s: %w", id, err)}
				}
				return
			}
			l.received <- ev
		}
	})
	l.speaking.Go(func() {
		for turn := 0; ctx.Err() == nil; turn++ {
			if err := l.turn(rng, apis, id, turn); err != nil {
				l.answers <- answered{err: err}
				return
			}
		}
	})
}

// turn submits a turn to its end. A turn that timed out meanwhile is treated as finished.
func (l *load) turn(rng *rand.Rand, apis []*client.Client, session string, n int) error {
	segments, end, turn := 1+rng.IntN(6), rng.IntN(4), ""
	for i := range segments {
		spec := client.JobSpec{
			RequestID: fmt.Sprintf("%s.%d.%d", session, n, i), TurnID: turn, SpeakerID: "ann",
			Segment: client.Segment{Index: i, Text: fmt.Sprintf("words %d of turn %d", i, n)}, Finalize: berth.FinalizeMaxDuration,
		}
		if i == segments-1 {
			spec.Finalize = []berth.Finalize{berth.FinalizeManual, berth.FinalizeTimeout, berth.FinalizeNone, berth.FinalizeNone}[end]
		}
		d, err := insist(l, rng, apis, func(ctx context.Context, c *client.Client) (client.Dispatch, error) {
			return c.Dispatch(ctx, session, spec)
		})
		if p := refusedFor(err); p != nil && p.Code == berth.CodeTurnFinalized && i > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("segment %s: %w", spec.RequestID, err)
		}
		turn = d.TurnID
		l.answers <- answered{turn: turn, index: i, text: spec.Segment.Text}
		<-time.After(time.Duration(rng.IntN(250)) * time.Millisecond)
	}
	if end == 3 { // otherwise the turn's timer ends it
		_, err := insist(l, rng, apis, func(ctx context.Context, c *client.Client) (struct{}, error) {
			return struct{}{}, c.FinalizeTurn(ctx, turn)
		})
		if p := refusedFor(err); err != nil && (p == nil || p.Code != berth.CodeTurnFinalized) {
			return fmt.Errorf("end of turn %s: %w", turn, err)
		}
	}
	return nil
}

// execute submits executions until ctx ends.
func (l *load) execute(ctx context.Context) {
	rng, apis := rand.New(rand.NewPCG(l.seed, 1000)), l.apis("operations")
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("execution-%d", n)
		accepted, err := insist(l, rng, apis, func(ctx context.Context, c *client.Client) (client.AcceptedExecution, error) {
			return c.Execute(ctx, client.ExecutionSpec{
				ExecutionID: id, Executor: "report", Input: json.RawMessage(fmt.Sprint(n)), TimeoutMs: 6000, DeadlineMs: 90_000,
			})
		})
		if err != nil {
			err = fmt.Errorf("execution %s: %w", id, err)
		}
		l.answers <- answered{execution: accepted.ExecutionID, err: err}
		<-time.After(time.Duration(300+rng.IntN(500)) * time.Millisecond)
	}
}
