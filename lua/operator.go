package lua

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth"
)

// OperatorService is the service id of the channel of operators; no task can have it.
const OperatorService = "operator"

// OperatorChannel identifies the stream of the changes that operators watch. It never ends. The scripts build its keys, too: see
// include operator.
func OperatorChannel() Channel { return Channel{ServiceID: OperatorService, TaskID: "events"} }

// AppendOperatorEvents appends changes that no script makes.
func (s *Scripts) AppendOperatorEvents(ctx context.Context, events ...berth.OperatorEvent) error {
	lines := make([]string, len(events))
	for i, ev := range events {
		lines[i] = operatorJSON(ev)
	}
	if _, err := s.AppendEvents(ctx, OperatorChannel(), Append{
		Producer: NewProducer(), First: 1, TTL: operatorTTL, Trim: operatorTrim, Events: StreamEntries(lines...),
	}); err != nil {
		return fmt.Errorf("append operator events: %w", err)
	}
	return nil
}

// The operator stream keeps about that many events, for that time after the last one; see include operator.
const (
	operatorTTL  = 24 * time.Hour
	operatorTrim = 10_000
)

// RecentOperatorEvents returns the ids of the last n events of each type, oldest first, and the id after which they follow. The last event
// of the stream is one of them if n is not 0.
func (s *Scripts) RecentOperatorEvents(ctx context.Context, n int) (ids []string, before string, err error) {
	ch, end := OperatorChannel(), "+"
	seen := map[berth.EventType]int{}
	for {
		entries, err := s.rdb.XRevRangeN(ctx, s.keys.Stream(ch.UserID, ch.ServiceID, ch.TaskID), end, "-", recentPage).Result()
		if err != nil {
			return nil, "", fmt.Errorf("read operator events: %w", err)
		}
		for _, e := range entries {
			var ev struct {
				Type berth.EventType `json:"type"`
			}
			data, _ := e.Values["e"].(string)
			_ = json.Unmarshal([]byte(data), &ev) // one of another version has no type
			if seen[ev.Type]++; seen[ev.Type] <= n {
				ids = append(ids, e.ID)
			}
			if n == 0 {
				return nil, e.ID, nil
			}
		}
		if len(entries) < recentPage {
			break
		}
		end = "(" + entries[len(entries)-1].ID
	}
	slices.Reverse(ids)
	if len(ids) > 0 {
		before, err = previousID(ids[0])
	}
	return ids, before, err
}

// recentPage is how many events are read at a time.
const recentPage = 1000

// previousID returns the id of the event before another one: they are numbered without gaps.
func previousID(id string) (string, error) {
	gen, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n == 0 {
		return "", fmt.Errorf("invalid id of an event %q", id)
	}
	return gen + "-" + strconv.FormatUint(n-1, 10), nil
}

// operatorJSON returns an event's JSON. A missing time is set.
func operatorJSON(ev berth.OperatorEvent) string {
	if ev.TS == 0 {
		ev.TS = time.Now().UnixMilli()
	}
	b, err := json.Marshal(ev)
	if err != nil {
		panic(err) // numbers and texts only
	}
	return string(b)
}

// ofTask reports whether the channel is a task's.
func (ch Channel) ofTask() bool {
	return ch.ServiceID != SessionService && ch.ServiceID != ConferenceService && ch.ServiceID != OperatorService
}

func (ch Channel) taskEvent(status string) berth.OperatorEvent {
	return berth.OperatorEvent{Type: berth.EventTask, UserID: ch.UserID, TaskID: ch.TaskID, Status: status}
}

// change returns the JSON of the operator event about an event of the channel's stream, "" for none.
func (ch Channel) change(e StreamEntry, end bool) string {
	switch {
	case ch.ServiceID == OperatorService:
		return ""
	case !ch.ofTask():
		return operatorJSON(ch.unendingEvent(e.Data))
	case end:
		return operatorJSON(ch.end(e.Data))
	default:
		return ch.progress(e)
	}
}

// progress returns the JSON of the operator event about an event of a task that changes its status, "" for other events.
func (ch Channel) progress(e StreamEntry) string {
	if e.Type != berth.EventStart && e.Type != berth.EventStageProgress {
		return ""
	}
	var data berth.Event
	if err := json.Unmarshal([]byte(e.Data), &data); err != nil || data.Status == "" {
		return ""
	}
	ev := ch.taskEvent(string(data.Status))
	ev.Model = data.Model
	return operatorJSON(ev)
}

// end returns the operator event about the terminal event of a task.
func (ch Channel) end(terminal string) berth.OperatorEvent {
	var data struct {
		Type berth.EventType `json:"type"`
		Code berth.Code      `json:"code"`
	}
	_ = json.Unmarshal([]byte(terminal), &data) // an event of berth
	ev := ch.taskEvent(string(berth.TaskCompleted))
	if data.Type == berth.EventError {
		ev.Status, ev.Reason = string(berth.TaskFailed), string(data.Code)
		if data.Code == berth.CodeCancelled {
			ev.Status = string(berth.TaskCancelled)
		}
	}
	return ev
}

// unendingEvent returns the operator event about an event of the stream of a session or of a number's conferences.
func (ch Channel) unendingEvent(event string) berth.OperatorEvent {
	if ch.ServiceID == ConferenceService {
		var c berth.ConferenceEvent
		_ = json.Unmarshal([]byte(event), &c) // an event of berth
		ev := berth.OperatorEvent{
			Type: berth.EventConference, UserID: ch.UserID, E164: c.E164, ConferenceID: c.ConferenceID, Status: string(c.Status), Reason: c.Waiting,
		}
		if c.Owner != nil {
			ev.NodeID = c.Owner.NodeID
		}
		if c.End != "" {
			ev.Reason = string(c.End)
		}
		return ev
	}
	var t berth.SessionEvent
	_ = json.Unmarshal([]byte(event), &t) // an event of berth
	ev := berth.OperatorEvent{
		Type: berth.EventTurn, UserID: ch.UserID, SessionID: t.SessionID, TurnID: t.TurnID, JobID: t.JobID, NodeID: t.NodeID, Reason: string(t.Code),
	}
	switch t.Type {
	case berth.EventTurn:
		ev.Status = string(berth.TurnOpen)
	case berth.EventTranslation:
		ev.Status = string(berth.JobDone)
	case berth.EventTranslationFailed:
		ev.Status = string(berth.JobFailed)
	default:
		ev.Status = string(berth.TurnFinalized)
	}
	return ev
}
