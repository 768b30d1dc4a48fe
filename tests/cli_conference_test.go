package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

// C1, C2, C10, C22 in the terminal: a conference is created, listed, followed while it waits and moves, and ended. The output
// shows why it waits, the commands that were sent, and finally its segments.
func TestCLI_ConferenceCommands_ShowTheLifeCycle(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	u1 := s.media("u1", 5, "--leave")
	const number = "8650000001"
	m.open("8650000009") // the unit takes work
	made := s.runCLI(true, "conference", "create", number, "--for", "10m", "--title", "all hands", "--max", "7", "--metadata", `{"floor":3}`)
	require.Regexp(t, `(?m)^`+number+`$`, made)
	require.Regexp(t, `· open on u1 \(epoch \d+\); ends `, made)
	require.Contains(t, s.runCLI(false, "conference", "create", "8650000003", "--title", "all\x1b[2J"), "title: must not contain U+001B")
	free := strings.Split(s.runCLI(true, "conference", "create"), "\n")
	require.Regexp(t, `^[1-9][0-9]+$`, free[0], "a free number")
	require.Contains(t, s.runCLI(false, "conference", "create", number), "the number has another conference")
	require.Contains(t, s.runCLI(false, "conference", "get", "8650000002"), "conference not found")

	var current berth.Conference
	require.NoError(t, json.Unmarshal([]byte(s.runCLI(true, "conference", "get", number)), &current))
	require.Equal(t, berth.ConferenceOpen, current.Status)
	require.Equal(t, 7, current.MaxParticipants)
	list := s.runCLI(true, "conference", "list", "--unit", "u1", "--status", "open")
	require.Regexp(t, `^NUMBER +STATUS +UNIT +EPOCH +ENDS +TITLE\n`, list)
	require.Regexp(t, `(?m)^`+number+` +open +u1 +\d+ +\d\d:\d\d:\d\d +all hands$`, list)
	require.Equal(t, 2, strings.Count(s.runCLI(true, "conference", "list", "--limit", "1"), "\n"))
	require.Equal(t, 1, strings.Count(s.runCLI(true, "conference", "list", "--unit", "u2"), "\n"))

	watch := s.startCLI("conference", "watch", number)
	s.awaitOutput(watch, `open on u1 \(epoch \d+\)`)
	require.True(t, u1.stop(maxWait))
	s.awaitOutput(watch, `awaiting-recovery: no eligible node of pool conference: .*1 offline`)
	s.media("u2", 5)
	s.awaitOutput(watch, `open on u2 \(epoch \d+\)`)
	s.awaitOutput(watch, `RecoverConference to u2 \(epoch \d+\): acknowledged`)
	s.runCLI(true, "conference", "end", number)
	s.awaitOutput(watch, `ended: released`)
	s.awaitOutput(watch, `· on u2 from \S+ to \S+, epoch \d+ \(released\)`)
	s.awaitOutput(watch, `· on u1 from \S+ to \S+, epoch \d+ \(unit_lost\)`)
	s.awaitOutput(watch, `ReleaseConference to u2 \(epoch \d+\): acknowledged`)
	<-watch.done
	require.True(t, watch.cmd.ProcessState.Success())

	current = berth.Conference{}
	require.NoError(t, json.Unmarshal([]byte(s.runCLI(true, "conference", "get", number)), &current))
	require.Equal(t, berth.EndReleased, current.End)
	again := s.runCLI(true, "conference", "create", number)
	require.Contains(t, again, "open on u2")
	var earlier berth.Conference
	require.NoError(t, json.Unmarshal([]byte(s.runCLI(true, "conference", "get", number, "--id", current.ID)), &earlier))
	require.Equal(t, current, earlier)
	t.Logf("watch:\n%s", watch.output())
}
