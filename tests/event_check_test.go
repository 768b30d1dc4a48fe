package tests

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

// segments are the accepted segments of a turn: by index, the expected translation.
type segments map[int]string

// checkEvents compares the events of a session's reader with the accepted segments: every segment of every turn appears once and
// in order, translated or failed, between one start and one end of its turn, and nothing else does.
func checkEvents(accepted map[string]segments, received []berth.SessionEvent) error {
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	byTurn := map[string][]berth.SessionEvent{}
	for _, ev := range received {
		if ev.Type != berth.EventGap {
			byTurn[ev.TurnID] = append(byTurn[ev.TurnID], ev)
		}
	}
	for id, events := range byTurn {
		want, known := accepted[id]
		if !known {
			bad("turn %s: no segment was accepted", id)
			continue
		}
		if events[0].Type != berth.EventTurn {
			bad("turn %s: begins with %s", id, events[0].Type)
		}
		if last := events[len(events)-1]; last.Type != berth.EventDone || last.Jobs != len(want) {
			bad("turn %s: %d segments were accepted, it ends with %s of %d", id, len(want), last.Type, last.Jobs)
		}
		before := -1
		seen := map[int]bool{}
		for i, ev := range events {
			switch {
			case ev.Type == berth.EventTurn && i > 0, ev.Type == berth.EventDone && i < len(events)-1:
				bad("turn %s: a second %s", id, ev.Type)
			case ev.Index == nil:
			case seen[*ev.Index]:
				bad("turn %s: segment %d is repeated", id, *ev.Index)
			case *ev.Index < before:
				bad("turn %s: segment %d comes behind %d", id, *ev.Index, before)
			default:
				before, seen[*ev.Index] = *ev.Index, true
				if text, ok := want[*ev.Index]; !ok || ev.Type == berth.EventTranslation && ev.Text != text {
					bad("turn %s: segment %d is %q, not %q", id, *ev.Index, ev.Text, text)
				}
			}
		}
		for i := range want {
			if !seen[i] {
				bad("turn %s: segment %d is lost", id, i)
			}
		}
	}
	for id := range accepted {
		if byTurn[id] == nil {
			bad("turn %s: no event was received", id)
		}
	}
	return errors.Join(wrong...)
}

// Each missing or repeated event is detected.
func TestEventCheck_WrongEvents_AreDetected(t *testing.T) {
	t.Parallel()
	accepted := map[string]segments{"t1": {0: "a", 1: "b", 3: "c"}, "t2": {0: "d"}}
	say := func(turn string, kind berth.EventType, index int, text string) berth.SessionEvent {
		ev := berth.SessionEvent{Type: kind, TurnID: turn, Text: text}
		if kind == berth.EventTranslation || kind == berth.EventTranslationFailed {
			ev.Index = &index
		}
		if kind == berth.EventDone {
			ev.Jobs = index
		}
		return ev
	}
	right := []berth.SessionEvent{
		say("t1", berth.EventTurn, 0, ""), say("t1", berth.EventTranslation, 0, "a"), say("t2", berth.EventTurn, 0, ""),
		{Type: berth.EventGap},
		say("t1", berth.EventTranslationFailed, 1, ""), say("t2", berth.EventTranslation, 0, "d"),
		say("t1", berth.EventTranslation, 3, "c"), say("t1", berth.EventDone, 3, ""), say("t2", berth.EventDone, 1, ""),
	}
	require.NoError(t, checkEvents(accepted, right))
	for i, ev := range right {
		if ev.Type == berth.EventGap {
			continue
		}
		require.Error(t, checkEvents(accepted, slices.Delete(slices.Clone(right), i, i+1)), "without %d", i)
		for at := range right {
			require.Error(t, checkEvents(accepted, slices.Insert(slices.Clone(right), at, ev)), "%d repeated at %d", i, at)
		}
	}
	for what, change := range map[string]func([]berth.SessionEvent){
		"out of order":     func(h []berth.SessionEvent) { h[1], h[6] = h[6], h[1] },
		"another text":     func(h []berth.SessionEvent) { h[6].Text = "b" },
		"another's":        func(h []berth.SessionEvent) { h[5].TurnID = "t3" },
		"of another count": func(h []berth.SessionEvent) { h[7].Jobs = 2 },
	} {
		h := slices.Clone(right)
		change(h)
		require.Error(t, checkEvents(accepted, h), what)
	}
}
