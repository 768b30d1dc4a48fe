package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// fakeScripts simulates Redis inside a synctest bubble. It records every round trip and returns the next of the given
// replies, or OK.
type fakeScripts struct {
	gated   bool          // each append waits for one value of gate
	gate    chan struct{} // of the bubble
	replies []reply
	trips   []trip
	seq     int
	opened  int
}

type reply struct {
	code string
	err  error
}

type trip struct {
	id        string // of the first event among those of all producers
	confirmed int
	events    []berth.Event
}

func (f *fakeScripts) OpenStream(context.Context, lua.Channel, int64, time.Duration, string) (string, error) {
	f.opened++
	f.seq = 0
	return lua.StreamOK, nil
}

func (f *fakeScripts) AppendEvents(
	ctx context.Context, _ lua.Channel, a lua.Append,
) (lua.AppendResult, error) {
	if f.gated {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return lua.AppendResult{}, ctx.Err()
		}
	}
	got := trip{id: fmt.Sprint(a.Producer, a.First), confirmed: a.Confirmed}
	for _, e := range a.Events {
		var ev berth.Event
		if err := json.Unmarshal([]byte(e.Data), &ev); err != nil {
			return lua.AppendResult{}, err
		}
		got.events = append(got.events, ev)
	}
	f.trips = append(f.trips, got)
	next := reply{code: lua.StreamOK}
	if len(f.replies) > 0 {
		next, f.replies = f.replies[0], f.replies[1:]
	}
	if next.code == lua.StreamOK {
		f.seq += len(a.Events)
	}
	return lua.AppendResult{Code: next.code, LastID: fmt.Sprintf("7-%d", f.seq)}, next.err
}

func (f *fakeScripts) EndStream(context.Context, lua.Channel, string, time.Duration, int64) (string, string, error) {
	return lua.StreamOK, "", nil
}

// summary returns the round trips in short form: "token:a | token_batch:bc/2 stage_progress".
func (f *fakeScripts) summary() string {
	var trips []string
	for _, t := range f.trips {
		var evs []string
		for _, ev := range t.events {
			s := string(ev.Type)
			if ev.Text != "" {
				s += ":" + ev.Text
			}
			if ev.Count > 0 {
				s += fmt.Sprintf("/%d", ev.Count)
			}
			evs = append(evs, s)
		}
		trips = append(trips, strings.Join(evs, " "))
	}
	return strings.Join(trips, " | ")
}

var (
	testChannel = lua.Channel{UserID: "alice", ServiceID: "web", TaskID: "t1"}
	testBase    = berth.Event{TaskID: "t1", ServiceID: "web", Stage: "score"}
	progress    = berth.Event{Type: berth.EventStageProgress}
)

// inBubble runs a test of a Writer on a fake clock.
func inBubble(t *testing.T, f *fakeScripts, opt Options, reopen func(context.Context) (bool, error), test func(t *testing.T, w *Writer)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opt.Logger = slog.New(slog.DiscardHandler)
		f.gate = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		w := newPublisher(f, opt).Writer(ctx, testChannel, 1, testBase, reopen)
		test(t, w)
		cancel()
		<-w.stopped
	})
}

func tokens(t *testing.T, w *Writer, text string) {
	t.Helper()
	for _, c := range text {
		require.NoError(t, w.Token(string(c)))
	}
	synctest.Wait()
}

// pass advances the fake clock.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestWriter_Tokens_AreMerged(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(t *testing.T, w *Writer)
		want string
	}{
		{"first token is sent immediately", func(t *testing.T, w *Writer) { tokens(t, w, "a") }, "token:a"},
		{"second token waits", func(t *testing.T, w *Writer) { tokens(t, w, "ab"); pass(399 * time.Millisecond) }, "token:a"},
		{"window ends", func(t *testing.T, w *Writer) { tokens(t, w, "abc"); pass(400 * time.Millisecond) }, "token:a | token_batch:bc/2"},
		{"batch is full", func(t *testing.T, w *Writer) { tokens(t, w, "abcdefghij") }, "token:a | token_batch:bcdefghi/8"},
		{"batch is full, then window ends", func(t *testing.T, w *Writer) {
			tokens(t, w, "abcdefghij")
			pass(400 * time.Millisecond)
		}, "token:a | token_batch:bcdefghi/8 | token_batch:j/1"},
		{"token after a pause is sent immediately", func(t *testing.T, w *Writer) {
			tokens(t, w, "a")
			pass(400 * time.Millisecond)
			tokens(t, w, "b")
		}, "token:a | token:b"},
		{"window starts when tokens were last sent", func(t *testing.T, w *Writer) {
			tokens(t, w, "a")
			pass(300 * time.Millisecond)
			tokens(t, w, "b")
			pass(100 * time.Millisecond)
			tokens(t, w, "c")
			pass(399 * time.Millisecond)
		}, "token:a | token_batch:b/1"},
		{"other events flush the tokens before them", func(t *testing.T, w *Writer) {
			tokens(t, w, "abc")
			require.NoError(t, w.Event(progress))
			synctest.Wait()
		}, "token:a | token_batch:bc/2 stage_progress"},
		{"a new stage starts a new batch", func(t *testing.T, w *Writer) {
			tokens(t, w, "abc")
			w.SetStage(berth.StageDeliver)
			tokens(t, w, "d")
			pass(400 * time.Millisecond)
		}, "token:a | token_batch:bc/2 | token_batch:d/1"},
		{"flush", func(t *testing.T, w *Writer) {
			tokens(t, w, "ab")
			require.NoError(t, w.Flush(t.Context()))
		}, "token:a | token_batch:b/1"},
		{"close", func(t *testing.T, w *Writer) {
			tokens(t, w, "ab")
			require.NoError(t, w.Close(t.Context()))
			require.NoError(t, w.Close(t.Context()))
			require.ErrorIs(t, w.Token("c"), ErrClosed)
			require.NoError(t, w.Err())
		}, "token:a | token_batch:b/1"},
		{"empty token sends nothing", func(t *testing.T, w *Writer) {
			require.NoError(t, w.Token(""))
			require.NoError(t, w.Flush(t.Context()))
			pass(time.Minute)
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeScripts{}
			inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
				tt.do(t, w)
				require.Equal(t, tt.want, f.summary())
			})
		})
	}
}

func TestWriter_Events_HaveAllFields(t *testing.T) {
	f := &fakeScripts{}
	inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
		begin := time.Now().UnixMilli()
		tokens(t, w, "a")
		pass(100 * time.Millisecond)
		tokens(t, w, "b")
		pass(100 * time.Millisecond)
		tokens(t, w, "c")
		w.SetStage(berth.StageDeliver)
		require.NoError(t, w.Event(progress))
		require.NoError(t, w.Flush(t.Context()))
		require.Equal(t, berth.Event{
			Type: berth.EventTokenBatch, TaskID: "t1", ServiceID: "web", Stage: "score", TS: begin + 200,
			Text: "bc", Count: 2, StartedAt: begin + 100, EndedAt: begin + 200,
		}, f.trips[1].events[0])
		require.Equal(t, berth.Event{
			Type: berth.EventStageProgress, TaskID: "t1", ServiceID: "web", Stage: berth.StageDeliver, TS: begin + 200,
		}, f.trips[len(f.trips)-1].events[0])
	})
}

// While Redis is slow, full batches queue and are sent together. The producer is not blocked.
func TestWriter_RedisIsSlow_BatchesAreSentTogether(t *testing.T) {
	f := &fakeScripts{gated: true}
	inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
		tokens(t, w, strings.Repeat("x", 21)) // the first, two full batches, and four
		pass(time.Second)
		require.Empty(t, f.summary())
		f.gate <- struct{}{}
		synctest.Wait()
		f.gate <- struct{}{}
		synctest.Wait()
		require.Equal(t, "token:x | token_batch:xxxxxxxx/8 token_batch:xxxxxxxx/8", f.summary())
		close(f.gate)
		require.NoError(t, w.Close(t.Context()))
		require.True(t, strings.HasSuffix(f.summary(), " | token_batch:xxxx/4"), f.summary())
		require.Equal(t, Stats{Tokens: 21, RoundTrips: 3}, w.Stats())
	})
}

func TestWriter_MaxPendingReached_ProducerBlocks(t *testing.T) {
	f := &fakeScripts{gated: true}
	inBubble(t, f, Options{MaxPending: 1000}, nil, func(t *testing.T, w *Writer) {
		handed := 0
		finished := make(chan error)
		go func() {
			for handed < 100 {
				if err := w.Token(strings.Repeat("y", 100)); err != nil {
					finished <- err
					return
				}
				handed++
			}
			finished <- nil
		}()
		synctest.Wait()
		require.Equal(t, 10, handed)
		close(f.gate)
		require.NoError(t, <-finished)
		require.NoError(t, w.Close(t.Context()))
		n := 0
		for _, trip := range f.trips {
			for _, ev := range trip.events {
				n += len(ev.Text)
				require.LessOrEqual(t, ev.Count, 8)
			}
		}
		require.Equal(t, 10_000, n)
	})
}

func TestWriter_StreamEndedOrFenced_Stops(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{lua.StreamFenced: ErrFenced, lua.StreamEnded: ErrEnded, lua.StreamAbsent: ErrEnded} {
		t.Run(code, func(t *testing.T) {
			f := &fakeScripts{replies: []reply{{code: code}}}
			inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
				require.NoError(t, w.Token("a"))
				<-w.stopped
				require.ErrorIs(t, w.Err(), want)
				require.ErrorIs(t, w.Token("b"), want)
				require.ErrorIs(t, w.Event(progress), want)
				require.ErrorIs(t, w.Flush(t.Context()), want)
				require.ErrorIs(t, w.Close(t.Context()), want)
				require.Len(t, f.trips, 1)
			})
		})
	}
}

func TestWriter_ContextEnds_Stops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeScripts{gated: true, gate: make(chan struct{})}
		cause := errors.New("cancelled by its user")
		ctx, cancel := context.WithCancelCause(t.Context())
		w := newPublisher(f, Options{}).Writer(ctx, testChannel, 1, testBase, nil)
		tokens(t, w, "a")
		cancel(cause)
		<-w.stopped
		require.ErrorIs(t, w.Token("b"), cause)
		require.ErrorIs(t, w.Close(t.Context()), cause)
	})
}

func TestWriter_CloseContextEnds_DropsUnconfirmed(t *testing.T) {
	f := &fakeScripts{gated: true}
	inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
		tokens(t, w, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.Flush(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
	})
}

// After a lost reply the append is retried with the same number, so that it takes effect once.
func TestWriter_ReplyLost_RepeatsTheSameAppend(t *testing.T) {
	cut := reply{err: errors.New("connection reset")}
	f := &fakeScripts{replies: []reply{{code: lua.StreamOK}, cut, cut}}
	inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
		tokens(t, w, "ab")
		require.NoError(t, w.Flush(t.Context()))
		require.Equal(t, "token:a | token_batch:b/1 | token_batch:b/1 | token_batch:b/1", f.summary())
		require.NotEqual(t, f.trips[0].id, f.trips[1].id)
		for _, again := range f.trips[2:] {
			require.Equal(t, f.trips[1].id, again.id)
			require.Equal(t, 1, again.confirmed)
		}
	})
}

func TestWriter_StreamLost_IsRestored(t *testing.T) {
	for _, code := range []string{lua.StreamAbsent, lua.StreamLost} {
		t.Run(code, func(t *testing.T) {
			calls := 0
			reopen := func(context.Context) (bool, error) {
				if calls++; calls == 1 {
					return false, errors.New("the database is unavailable")
				}
				return true, nil
			}
			ok := reply{code: lua.StreamOK}
			f := &fakeScripts{replies: []reply{ok, ok, {code: code}, {code: code}}}
			inBubble(t, f, Options{}, reopen, func(t *testing.T, w *Writer) {
				tokens(t, w, "ab")
				require.NoError(t, w.Flush(t.Context()))
				tokens(t, w, "c")
				require.NoError(t, w.Event(progress))
				require.NoError(t, w.Flush(t.Context()))
				require.Equal(t, "token:a | token_batch:b/1 | token_batch:c/1 stage_progress"+ // lost, and the database is unavailable
					" | token_batch:c/1 stage_progress"+ // still lost, now it can be restored
					" | reset token_batch:ab/2 token_batch:c/1 stage_progress", f.summary())
				require.Equal(t, 2, calls)
				require.Equal(t, 1, f.opened)
				require.Zero(t, f.trips[4].confirmed)
				require.NotEqual(t, f.trips[2].id, f.trips[4].id)
			})
		})
	}
}

// Readers of a restored stream get the start, the stages and the items again, each text in its stage.
func TestWriter_StreamLost_StartStagesItemsRestored(t *testing.T) { // T10, L12
	f := &fakeScripts{}
	yes := func(context.Context) (bool, error) { return true, nil }
	point := func(name string) berth.Event {
		return berth.Event{Type: berth.EventStageProgress, Items: []berth.Item{{Kind: "point", Value: json.RawMessage(`"` + name + `"`)}}}
	}
	inBubble(t, f, Options{FlushInterval: time.Hour, FlushSize: 1000}, yes, func(t *testing.T, w *Writer) {
		require.NoError(t, w.Event(berth.Event{Type: berth.EventStart, Model: "m"}, berth.Event{Type: berth.EventStageProgress, Status: berth.TaskStreaming}))
		tokens(t, w, "a")
		w.SetStage("compare")
		require.NoError(t, w.Event(berth.Event{Type: berth.EventStageProgress, Message: "comparing"}))
		tokens(t, w, "bc")
		require.NoError(t, w.Event(point("Go")))
		require.NoError(t, w.Event(point("Redis")))
		tokens(t, w, "d")
		require.NoError(t, w.Flush(t.Context()))
		f.replies = []reply{{code: lua.StreamAbsent}} // the data are lost now
		tokens(t, w, "e")
		require.NoError(t, w.Flush(t.Context()))
		last := f.trips[len(f.trips)-1].events
		var got []string
		for _, ev := range last {
			line := string(ev.Type) + " " + string(ev.Stage) + " " + ev.Text + ev.Message + string(ev.Status)
			for _, item := range ev.Items {
				line += strings.Trim(string(item.Value), `"`) + ","
			}
			got = append(got, line)
		}
		require.Equal(t, []string{"start", "reset"}, []string{string(last[0].Type), string(last[1].Type)})
		require.Equal(t, "m", last[0].Model)
		require.Contains(t, got[2], "STREAMING")
		require.Equal(t, []string{"token_batch score a", "stage_progress compare comparing", "token_batch compare bc", "stage_progress compare Go,Redis,", "token_batch compare d"},
			got[3:8])
	})
}

// Text before a reset is not sent again when the stream is restored.
func TestWriter_Reset_EarlierTextIsNotRestored(t *testing.T) {
	ok := reply{code: lua.StreamOK}
	f := &fakeScripts{replies: []reply{ok, ok, ok, {code: lua.StreamAbsent}}}
	yes := func(context.Context) (bool, error) { return true, nil }
	inBubble(t, f, Options{}, yes, func(t *testing.T, w *Writer) {
		tokens(t, w, "a")
		require.NoError(t, w.Event(berth.Event{Type: berth.EventReset}))
		tokens(t, w, "b")
		require.NoError(t, w.Flush(t.Context()))
		tokens(t, w, "c")
		require.NoError(t, w.Flush(t.Context()))
		require.Equal(t, "token:a | reset | token_batch:b/1 | token_batch:c/1 | reset token_batch:b/1 token_batch:c/1", f.summary())
	})
}

func TestWriter_InvalidUTF8_IsReplaced(t *testing.T) {
	f := &fakeScripts{}
	inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
		hostile := "\n\nevent: done\ndata: {}\n\n<script>\x1b[31m\u2028" + strings.Repeat("é", 10_000)
		require.NoError(t, w.Token(hostile))
		require.NoError(t, w.Token("a\xffb"))
		require.NoError(t, w.Close(t.Context()))
		require.Equal(t, hostile, f.trips[0].events[0].Text)
		require.Equal(t, "a\uFFFDb", f.trips[1].events[0].Text)
	})
}

func TestWriter_EventsOfOneCall_AreSentTogether(t *testing.T) {
	f := &fakeScripts{}
	inBubble(t, f, Options{Production: true}, nil, func(t *testing.T, w *Writer) {
		require.NoError(t, w.Event())
		require.NoError(t, w.Event(berth.Event{Type: berth.EventStart}, berth.Event{Type: berth.EventDebug}, progress))
		require.Error(t, w.Event(progress, berth.Event{Type: berth.EventDone}))
		require.NoError(t, w.Flush(t.Context()))
		require.Len(t, f.trips, 1)
		require.Len(t, f.trips[0].events, 2)
		require.Equal(t, berth.EventStart, f.trips[0].events[0].Type)
		require.Equal(t, berth.EventStageProgress, f.trips[0].events[1].Type)
	})
}

func TestWriter_InvalidEvents_AreRejected(t *testing.T) {
	f := &fakeScripts{}
	inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
		for _, typ := range []berth.EventType{berth.EventDone, berth.EventError, berth.EventGap} {
			require.Error(t, w.Event(berth.Event{Type: typ}))
		}
		require.Error(t, w.Event(berth.Event{Type: berth.EventStageProgress, Result: []byte("{")}))
		require.NoError(t, w.Close(t.Context()))
		require.Empty(t, f.trips)
	})
}

func TestWriter_DebugEventsInProduction_AreDropped(t *testing.T) {
	t.Parallel()
	for production, want := range map[bool]string{true: "", false: "debug | debug"} {
		t.Run(fmt.Sprintf("production=%t", production), func(t *testing.T) {
			f := &fakeScripts{}
			inBubble(t, f, Options{Production: production}, nil, func(t *testing.T, w *Writer) {
				debug := berth.Event{Type: berth.EventDebug}
				require.NoError(t, w.Event(debug))
				require.NoError(t, w.Close(t.Context()))
				p := newPublisher(f, Options{Production: production})
				require.NoError(t, p.Publish(t.Context(), testChannel, 1, debug))
				require.Equal(t, want, f.summary())
			})
		})
	}
}

func TestWriter_ConcurrentProducers_OrderOfEachIsKept(t *testing.T) {
	f := &fakeScripts{}
	inBubble(t, f, Options{}, nil, func(t *testing.T, w *Writer) {
		const producers, each = 8, 200
		finished := make(chan error)
		for p := range producers {
			go func() {
				var err error
				for n := range each {
					if n%50 == 49 {
						err = errors.Join(err, w.Event(berth.Event{Type: berth.EventStageProgress, Message: fmt.Sprintf("%d:%d ", p, n)}))
					} else {
						err = errors.Join(err, w.Token(fmt.Sprintf("%d:%d ", p, n)))
					}
				}
				finished <- err
			}()
		}
		for range producers {
			require.NoError(t, <-finished)
		}
		require.NoError(t, w.Close(t.Context()))
		var all strings.Builder
		for _, trip := range f.trips {
			for _, ev := range trip.events {
				all.WriteString(ev.Text + ev.Message)
			}
		}
		next := make([]int, producers)
		for _, word := range strings.Fields(all.String()) {
			var p, n int
			_, err := fmt.Sscanf(word, "%d:%d", &p, &n)
			require.NoError(t, err)
			require.Equal(t, next[p], n)
			next[p]++
		}
		for _, n := range next {
			require.Equal(t, each, n)
		}
	})
}
