package workflows

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/payload"
)

// characters are those whose length as JSON differs from their length, and others.
var characters = []string{
	"\x01", "\x1f", "\x7f", "\b", "\f", "\n", "\r", "\t", "\"", "\\", "/", "<", ">", "&", "\u2028", "\u2029", "\ufffd", "a", "é", "漢", "😀", "\u0301",
	"\xff", "\xc3", "\xed\xa0\x80", "\x00",
}

func texts() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(characters), rapid.String())), func(parts []string) string {
		return strings.Join(parts, "")
	})
}

// payloadLen is the length of a value as Temporal stores it without encryption.
func payloadLen(t require.TestingT, v any) int {
	p, err := payload.NewDataConverter(payload.Keys{}).ToPayload(v)
	require.NoError(t, err)
	return len(p.GetData())
}

func TestJSONLen_AnyText_IsLengthInPayload(t *testing.T) { // FA3
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := texts().Draw(rt, "text")
		require.Equal(rt, payloadLen(rt, text), jsonLen(text)+2)
	})
}

func TestPackedText_AnyText_IsAtMostAThirdLonger(t *testing.T) { // FA3
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.ToValidUTF8(texts().Draw(rt, "text"), "?")
		require.LessOrEqual(rt, payloadLen(rt, PackedText(text)), min(jsonLen(text)+2, len(text)*4/3+20))
		b, err := json.Marshal(PackedText(text))
		require.NoError(rt, err)
		var back PackedText
		require.NoError(rt, json.Unmarshal(b, &back))
		require.Equal(rt, text, string(back))
	})
	var text PackedText
	require.NoError(t, json.Unmarshal([]byte(`"\u003cb\u003e"`), &text), "of an earlier version")
	require.Equal(t, PackedText("<b>"), text)
	for _, wrong := range []string{"1", `["a"]`, `{"base64":"!"}`} {
		require.Error(t, json.Unmarshal([]byte(wrong), &text), wrong)
	}
}

// A turn with the longest ids and texts stays below Temporal's limits in results, queries and the input of its next run.
func TestTurn_LongestJobs_PayloadsAreBounded(t *testing.T) { // FA3
	t.Parallel()
	id := strings.Repeat("i", 128)
	for _, character := range characters {
		text := strings.Repeat(character, berth.MaxSegmentBytes/len(character))
		u := &turn{in: TurnInput{TurnID: id, SessionID: id, UserID: strings.Repeat("<", berth.MaxUserID)}}
		for i := range berth.MaxSegments {
			j := &job{accepted: true, TurnJob: berth.TurnJob{
				JobID: id + "-999", RequestID: id, Index: i, SpeakerID: strings.Repeat(`"`, 128), Status: berth.JobDone, NodeID: id, PoolID: id, Text: text,
			}, reply: DispatchReply{SubmissionID: id, RequestHash: strings.Repeat("h", 64), TurnID: id, Assignment: berth.Assignment{
				LeaseID: id + id, JobID: id + "-999", NodeRef: berth.NodeRef{NodeID: id}, PoolID: id,
			}}}
			if i%2 == 1 {
				j.Status, j.Text, j.Code, j.Message = berth.JobFailed, "", berth.CodeNodeFailed, strings.Repeat(character, 600/len(character))
			}
			u.jobs = append(u.jobs, j)
		}
		require.Less(t, payloadLen(t, u.snapshot()), maxTurnResult+1<<10, "%q", character)
		require.Negative(t, u.leftForTexts(), "so many jobs do not continue as new")
		u.jobs = u.jobs[:berth.MaxSegments/2]
		require.NotEmpty(t, u.snapshot().Jobs[0].Text, "%q", character)
		u.stream.reported = len(u.jobs)
		require.Positive(t, u.leftForTexts())
		require.Less(t, payloadLen(t, u.progress()), maxTurnProgress+1<<10, "%q", character)
	}
}
