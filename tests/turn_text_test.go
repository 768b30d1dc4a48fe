package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"berth"
	"berth/client"
	"berth/workflows"
)

// maxTransaction is what Temporal writes at most in one transaction, and receives at most in one message.
const maxTransaction = 4 << 20

// longSegments submits that many segments of the longest text that the test's nodes can translate, at the same time, and retries what
// is refused for a moment. It returns the texts.
func (c *session) longSegments(turn string, count int, character string) []string {
	c.s.tb.Helper()
	texts := make([]string, count)
	var submitting sync.WaitGroup
	for i := range texts {
		text := "x" + strings.Repeat(character, (berth.MaxSegmentBytes-len("x @a"))/len(character)) // something visible
		texts[i] = text
		submitting.Go(func() {
			for {
				_, err := c.Dispatch(context.Background(), c.id, client.JobSpec{
					RequestID: fmt.Sprintf("%s.%d", turn, i), TurnID: turn, Segment: client.Segment{Index: i, Text: text},
				})
				if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == berth.CodeUnavailable && p.RetryAfter > 0 {
					time.Sleep(100 * time.Millisecond) //nolint:forbidigo // as a client does
					continue
				}
				if err != nil {
					c.s.tb.Errorf("segment %d: %v", i, err)
				}
				return
			}
		})
	}
	submitting.Wait()
	return texts
}

// smallTasks checks what each workflow task added to a history.
func (s *stack) smallTasks(workflowID string) {
	s.tb.Helper()
	size := 0
	for _, ev := range s.history(context.Background(), s.temporal(), workflowID, "").GetEvents() {
		if ev.GetWorkflowTaskStartedEventAttributes() != nil {
			size = 0
		}
		if size += proto.Size(ev); size > maxTransaction {
			s.tb.Fatalf("a workflow task of %s added more than %d bytes", workflowID, maxTransaction)
		}
	}
}

// The longest segments that the API documents arrive at the same time. Every one is translated, whatever its characters are in JSON.
func TestTurn_LongestSegmentsAtOnce_AllAreTranslated(t *testing.T) { // FA3
	t.Parallel()
	for mode, option := range map[string]option{"without keys": with(), "with keys": withKeys(t, "k1:"+payloadKey("1"))} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, option, with("TURN_TIMEOUT_MS=60000"))
			a, b := s.testNode("a", 32), s.testNode("b", 32)
			const segments = 15 // a turn has at most 1 MiB
			for name, character := range map[string]string{
				"control characters": "\x01", "line separators": "\u2028", "HTML": "<", "quotes": `"`, "Chinese": "漢", "emoji": "😀",
				"not UTF-8": "\ufffd", "combining": "e\u0301", "escapes": "\x1b", "DEL": "\x7f",
			} {
				t.Run(name, func(t *testing.T) {
					c := s.session("alice", "s-"+berth.NewID(""))
					first := c.submit("", 999, "")
					texts := c.longSegments(first.TurnID, segments, character)
					require.NoError(t, c.finalize(first.TurnID))
					c.await(first.TurnID, berth.EventDone)
					got := map[int]string{}
					for _, ev := range c.all {
						if ev.Event.Index != nil && ev.Event.Type == berth.EventTranslation {
							got[*ev.Event.Index] = strings.TrimSuffix(ev.Event.Text, " @"+ev.Event.NodeID)
						}
					}
					for i, text := range texts {
						require.True(t, got[i] == text, "segment %d has %d bytes, not %d", i, len(got[i]), len(text)) //nolint:testifylint // no diff of the texts
					}
					turn := c.turn(first.TurnID)
					require.Len(t, turn.Jobs, segments+1)
					s.succeeds(workflows.TurnWorkflowID(first.TurnID))
					s.smallTasks(workflows.TurnWorkflowID(first.TurnID))
				})
			}

			t.Run("a node dies with all segments", func(t *testing.T) {
				c := s.session("alice", "s-dies")
				a.held.Store(true)
				b.held.Store(true)
				first := c.submit("", 999, "")
				died, other := a, b
				if first.NodeID == "b" {
					died, other = b, a
				}
				count := segments
				if mode == "without keys" {
					count = 4 // enough to exceed the limit, and small enough for a recorded history
				}
				c.longSegments(first.TurnID, count, "\x01")
				for range count + 1 {
					died.next(s)
				}
				died.stop()
				for range count + 1 {
					other.next(s).answer <- nil
				}
				require.NoError(t, c.finalize(first.TurnID))
				require.Contains(t, c.await(first.TurnID, berth.EventDone), fmt.Sprintf("done(manual 0/%d)", count+1))
				s.succeeds(workflows.TurnWorkflowID(first.TurnID))
				s.smallTasks(workflows.TurnWorkflowID(first.TurnID))
				if mode == "without keys" {
					s.saveHistory("turn-long-texts", workflows.TurnWorkflowID(first.TurnID))
				}
			})
		})
	}
}

// The longest inputs and outputs of executions, and the longest data of conferences, whatever their characters are in JSON.
func TestExecution_LongestInputAndOutput_Complete(t *testing.T) { // FA3
	s := shareStack(t)
	c, engine := s.user("alice"), s.engine("long-input", 8, false)
	s.afterGrace(engine.scripts)
	for name, character := range map[string]string{
		"control characters": `\u0001`, "line separators": "\u2028", "HTML": "<", "quotes": `\"`, "Chinese": "漢", "emoji": "😀", "escaped": `\u003c`,
	} {
		input := json.RawMessage(`"` + strings.Repeat(character, (berth.MaxExecutionBytes-2)/len(character)) + `"`)
		id := "long-" + berth.NewID("")
		accepted(t, func() (client.AcceptedExecution, error) {
			return c.Execute(t.Context(), client.ExecutionSpec{ExecutionID: id, Executor: "echo", Input: input, DeadlineMs: 60_000})
		})
		var ex berth.Execution
		s.eventually("the execution to end", func() bool {
			var err error
			ex, err = c.Execution(context.Background(), id)
			return err == nil && ex.Status.Final()
		})
		require.Equal(t, berth.ExecutionCompleted, ex.Status, "%s: %s", name, ex.Message)
		require.True(t, string(input) == string(ex.Output), "%s: %d bytes of %d", name, len(ex.Output), len(input)) //nolint:testifylint // no diff of the texts
	}
}
