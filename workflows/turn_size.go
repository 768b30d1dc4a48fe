package workflows

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// Temporal limits messages as they are sent: the texts in JSON, where a control character is six bytes long. A workflow task that
// exceeds 4 MiB terminates the turn, and so does an event of more than 2 MiB. One message can contain all of these:
//
//   - what the workflow task adds to the history, at most maxTaskSize: the accepted segments, and the jobs that it schedules;
//   - the segments that it rejects: at most ten, because Temporal has no more updates of a workflow at the same time, each at most
//     a third longer than its text (PackedText);
//   - the response to a query or the result of the turn, at most maxTurnResult.
const (
	// maxTaskSize bounds the segments that one workflow task accepts, and the jobs that it schedules, in bytes of their payloads.
	// Twice the longest segment fits. Results that nodes reported meanwhile, up to 2 MiB, are written in the same transaction.
	maxTaskSize = 5 << 18
	// maxTurnText bounds the texts of all segments of a turn, in bytes, because one history holds them.
	maxTurnText = 1 << 20
	// maxTurnResult bounds a turn's result and query in bytes of JSON. Translations and then messages beyond it are omitted there; the
	// stream has all.
	maxTurnResult = 5 << 18
	// payloadOverhead is more than what a message contains of a job besides its text: ids, names, and what encryption adds.
	payloadOverhead = 2 << 10
	// rowOverhead is more than the names and numbers of a job or a reply in JSON.
	rowOverhead = 300
)

// taskSize counts what a turn adds to its history in one workflow task.
type taskSize struct {
	historyLength int // at the beginning of the workflow task that was counted last
	used          int
	reserved      int // by jobs that are scheduled once their node is chosen, in this workflow task or a later one
}

// fits reports whether n more bytes can be added, now or in a later workflow task.
func (s *taskSize) fits(ctx workflow.Context, n int) bool {
	used := s.used
	if s.historyLength != workflow.GetInfo(ctx).GetCurrentHistoryLength() {
		used = 0
	}
	return used+s.reserved+n <= maxTaskSize
}

// add counts n bytes in the current workflow task.
func (s *taskSize) add(ctx workflow.Context, n int) {
	if length := workflow.GetInfo(ctx).GetCurrentHistoryLength(); s.historyLength != length {
		s.historyLength, s.used = length, 0
	}
	s.used += n
}

// schedule counts a job that was reserved in the current workflow task.
func (s *taskSize) schedule(ctx workflow.Context, n int) {
	s.reserved -= n
	s.add(ctx, n)
}

// requestSize and jobSize are the sizes of a segment's update and of its job.
func requestSize(text string) int { return min(jsonLen(text), base64Len(text)) + payloadOverhead }
func jobSize(text string) int     { return jsonLen(text) + payloadOverhead }

// snapshot returns the current state of the turn.
func (t *turn) snapshot() berth.Turn {
	out := berth.Turn{
		ID: t.in.TurnID, SessionID: t.in.SessionID, UserID: t.in.UserID, SrcLang: t.in.SrcLang, TgtLang: t.in.TgtLang,
		Status: t.status, Reason: t.reason, AffinityNodeID: t.affinity, Jobs: []berth.TurnJob{},
		StartedAt: t.startedAt, FinalizedAt: t.finalizedAt,
	}
	left := maxTurnResult
	for _, j := range t.jobs {
		if !j.accepted {
			continue
		}
		row := j.TurnJob
		if row.Dispatches > 1 {
			row.Affinity, row.Missed = "", ""
		}
		left -= rowSize(row)
		out.Jobs = append(out.Jobs, row)
	}
	fill(out.Jobs, left)
	return out
}

// fill omits the translations and messages of jobs beyond a number of bytes of JSON.
func fill(jobs []berth.TurnJob, left int) {
	for i := range jobs {
		j := &jobs[i]
		if left -= jsonLen(j.Text) + jsonLen(j.Message); left < 0 {
			j.Text, j.Message = "", ""
		}
	}
}

// rowSize returns an upper bound of the size of a job as JSON, without its translation and message.
func rowSize(j berth.TurnJob) int {
	return rowOverhead + jsonLen(j.JobID) + jsonLen(j.RequestID) + jsonLen(j.SpeakerID) + jsonLen(j.NodeID) + jsonLen(j.PoolID)
}

// replySize returns an upper bound of the size of a reply as JSON.
func replySize(r DispatchReply) int {
	return 2*rowOverhead + jsonLen(r.SubmissionID) + jsonLen(r.RequestHash) + jsonLen(r.TurnID) + jsonLen(r.LeaseID) + jsonLen(r.JobID) +
		jsonLen(r.NodeID) + jsonLen(r.PoolID)
}

// jsonLen returns the length of a text as JSON in a payload, without its quotes.
func jsonLen(s string) int {
	n := 0
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t':
			n += 2
		case c < ' ' || c == '\u2028' || c == '\u2029' || c == utf8.RuneError && size == 1: // \u0001
			n += 6
		default:
			n += size
		}
	}
	return n
}

// base64Len returns the length of a text in the other form of PackedText.
func base64Len(s string) int { return base64.StdEncoding.EncodedLen(len(s)) + len(`{"base64":}`) }

// PackedText is a text that is at most a third longer as JSON: a string, or an object with the text in base64 where the string would be
// longer, because most of its characters have to be escaped.
type PackedText string

type packed struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (t PackedText) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	var form any = string(t)
	if jsonLen(string(t)) > base64Len(string(t)) {
		form = packed{[]byte(t)}
	}
	if err := e.Encode(form); err != nil {
		return nil, fmt.Errorf("encode text: %w", err)
	}
	return out.Bytes(), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *PackedText) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	var p packed
	err := json.Unmarshal(b, &p)
	*t = PackedText(p.Base64)
	return err
}
