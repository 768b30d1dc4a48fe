package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"berth"
	"berth/internal/client"
	"berth/internal/unit"
	"berth/lua"
	"berth/workflows"
)

// media is a media unit in a process of its own, with a simulated media server.
type media struct {
	*process
	s       *stack
	id      string
	control string
}

func (s *stack) media(id string, slots int, args ...string) *media {
	s.tb.Helper()
	m := &media{s: s, id: id, control: freeAddr(s.tb)}
	m.run(slots, args...)
	return m
}

// run starts its process, for the first time or anew.
func (m *media) run(slots int, args ...string) {
	m.s.tb.Helper()
	m.process = m.s.start("berth", append([]string{
		"media", "--id", m.id, "--slots", fmt.Sprint(slots), "--driver", "sim", "--sim-control", m.control, "--check", "100ms",
	}, args...), append([]string{"BERTH_URL=http://" + m.s.httpAddr, "BERTH_TOKEN=" + m.s.token("units", "node")}, m.s.settings...))
	m.s.awaitNode(m.id)
}

// ask asks the simulated media server for something, and answers the numbers that it runs.
func (m *media) ask(method, path string, body any) (runs map[string]int64) {
	m.s.tb.Helper()
	b, err := json.Marshal(body)
	require.NoError(m.s.tb, err)
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+m.control+path, bytes.NewReader(b))
	require.NoError(m.s.tb, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(m.s.tb, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(m.s.tb, http.StatusOK, res.StatusCode)
	var is struct{ Conferences []unit.Copy }
	require.NoError(m.s.tb, json.NewDecoder(res.Body).Decode(&is))
	runs = map[string]int64{}
	for _, c := range is.Conferences {
		runs[c.E164] = c.Epoch
	}
	return runs
}

func (m *media) runs() map[string]int64 { return m.ask(http.MethodGet, "/", nil) }

func (m *media) fail(f unit.Fault) { m.ask(http.MethodPut, "/fault", map[string]any{"fault": f}) }

// meeting is a client's conferences.
type meeting struct {
	*client.Client
	s *stack
}

func (s *stack) meeting() *meeting { return &meeting{Client: s.user("alice"), s: s} }

func (m *meeting) open(e164 string, set ...func(*client.ConferenceSpec)) client.Conference {
	m.s.tb.Helper()
	spec := client.ConferenceSpec{E164: e164, Title: e164, DurationMs: time.Hour.Milliseconds()}
	for _, f := range set {
		f(&spec)
	}
	var made client.Conference
	m.s.eventually(e164+" to be created", func() (ok bool) { // units and Redis may be new
		var err error
		made, err = m.CreateConference(context.Background(), spec)
		return err == nil
	})
	return made
}

// until waits until the conference is as it should be.
func (m *meeting) until(e164, what string, is func(berth.Conference) bool) (c berth.Conference) {
	m.s.tb.Helper()
	m.s.eventually(e164+" to be "+what, func() bool {
		got, err := m.Conference(context.Background(), e164, "")
		c = got.Conference
		return err == nil && is(c)
	})
	return c
}

func on(id string) func(berth.Conference) bool {
	return func(c berth.Conference) bool { return c.Status == berth.ConferenceOpen && c.Owner.NodeID == id }
}

func ofStatus(s berth.ConferenceStatus) func(berth.Conference) bool {
	return func(c berth.Conference) bool { return c.Status == s }
}

// end ends the conference and keeps its history.
func (m *meeting) end(e164, name string) {
	m.s.tb.Helper()
	_, err := m.EndConference(context.Background(), e164)
	require.NoError(m.s.tb, err)
	m.over(e164, name)
}

// over waits for the conference's run to be over and keeps its history; it tells what it cost.
func (m *meeting) over(e164, name string) {
	m.s.tb.Helper()
	id := workflows.ConferenceWorkflowID(e164)
	m.s.awaitEnd(id)
	tasks, h := 0, m.s.history(context.Background(), m.s.temporal(), id, "")
	for _, ev := range h.GetEvents() {
		if ev.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			tasks++
		}
	}
	m.s.tb.Logf("%s: %d workflow tasks, %d events", name, tasks, len(h.GetEvents()))
	m.s.keepWorkflow(name, id)
}

// link waits for the link of a unit's generation to be over and keeps its history.
func (s *stack) link(name, id string, generation int64) {
	s.tb.Helper()
	s.awaitEnd(workflows.LinkWorkflowID(id, generation))
	s.keepWorkflow(name, workflows.LinkWorkflowID(id, generation))
}

func TestConference_UnitReturns_EarlierCopyIsAdopted(t *testing.T) { // C1, C2, C7, C10, C15, C16, C17
	t.Parallel()
	s := newStack(t)
	m := s.meeting()
	u1 := s.media("u1", 5)
	a := m.open("8610000001")
	require.Equal(t, berth.ConferenceOpen, a.Status)
	require.Equal(t, map[string]int64{"8610000001": 1}, u1.runs())
	m.end("8610000001", "conference-released")
	require.Empty(t, u1.runs())

	u1.fail(unit.FaultRefuse)
	_, err := m.CreateConference(t.Context(), client.ConferenceSpec{E164: "8610000002", DurationMs: time.Hour.Milliseconds()})
	require.Error(t, err)
	m.over("8610000002", "conference-refused")
	u1.fail(unit.FaultNone)

	first, second := m.open("8610000001"), m.open("8610000003")
	require.EqualValues(t, 2, first.Owner.Epoch, "C20: a number that is used again")
	u2 := s.media("u2", 1)
	u1.fail(unit.FaultSilent)
	waits, moved := "", ""
	s.eventually("one to be recovered, and one to wait", func() bool {
		waits, moved = "", ""
		for _, n := range []string{"8610000001", "8610000003"} {
			c, err := m.Conference(t.Context(), n, "")
			if err == nil && ofStatus(berth.ConferenceAwaitingRecovery)(c.Conference) && c.Waiting != "" {
				waits = n
			}
			if err == nil && on("u2")(c.Conference) {
				moved = n
			}
		}
		return waits != "" && moved != ""
	})
	require.Len(t, u2.runs(), 1)
	m.end(moved, "conference-recovered")
	m.until(waits, "on u2 as soon as there is room (C2)", on("u2"))
	require.Len(t, u1.runs(), 2, "it runs both all the same")

	u1.fail(unit.FaultNone)
	back := m.until(waits, "the earlier copy again (C7)", on("u1"))
	require.Equal(t, back.Epoch, back.Owner.Epoch)
	s.eventually("only the earlier copy to be left", func() bool {
		return len(u2.runs()) == 0 && len(u1.runs()) == 1 && u1.runs()[waits] == back.Epoch
	})
	s.link("link-lost", "u1", second.Owner.Generation)
	s.link("link-returned", "u1", back.Owner.Generation)
	row, ok, err := lua.New(s.redis(), lua.Keys{}).ConferenceRow(t.Context(), waits)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, back.Epoch, row.Epoch)
	m.end(waits, "conference-adopted")
	s.noSlots("u1", "u2")
}

func TestConference_UnitEndsOrRestarts_ReasonIsRecorded(t *testing.T) { // C5, C8, C14, C15
	t.Parallel()
	s := newStack(t)
	m := s.meeting()
	u1 := s.media("u1", 5)
	m.open("8610000001")
	u1.ask(http.MethodDelete, "/conferences/8610000001", nil)
	is := m.until("8610000001", "ended by its unit", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndByUnit, is.End)
	m.over("8610000001", "conference-ended-by-unit")

	m.open("8610000002", func(c *client.ConferenceSpec) { c.DurationMs = 3000 })
	is = m.until("8610000002", "over", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndTime, is.End)
	m.over("8610000002", "conference-end-time")

	lost := m.open("8610000003")
	no := false
	m.open("8610000004", func(c *client.ConferenceSpec) { c.Recoverable = &no })
	u1.ask(http.MethodPost, "/restart", nil)
	is = m.until("8610000003", "on the next run of its media server", func(c berth.Conference) bool {
		return on("u1")(c) && c.Owner.Generation > lost.Owner.Generation
	})
	require.NotEqual(t, lost.Owner.Incarnation, is.Owner.Incarnation)
	is = m.until("8610000004", "ended with its unit", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndNotRecoverable, is.End)
	m.over("8610000004", "conference-not-recoverable")
	m.end("8610000003", "conference-restarted")
	s.noSlots("u1")
}

func TestConference_RedisWiped_OwnersAreRestored(t *testing.T) { // C4, L12
	t.Parallel()
	s := newStack(t)
	m := s.meeting()
	u1 := s.media("u1", 5)
	before := m.open("8610000001")
	orphan := s.media("u2", 5)
	u1.fail(unit.FaultRefuse)
	m.open("8610000002") // refused on u1 or not, it is on u2 in the end
	u1.fail(unit.FaultNone)
	m.until("8610000002", "on u2", on("u2"))
	require.NoError(t, s.redis().FlushAll(t.Context()).Err())
	orphan.kill()
	after := m.until("8610000001", "open again", func(c berth.Conference) bool {
		return on("u1")(c) && c.Owner.Generation != before.Owner.Generation
	})
	require.Equal(t, before.Owner.Epoch, after.Owner.Epoch, "it stayed")
	m.until("8610000002", "recovered", on("u1"))
	s.eventually("two slots of u1 to be held", func() bool {
		nodes, err := lua.New(s.redis(), lua.Keys{}).ReadNodes(t.Context(), "u1")
		return err == nil && nodes["u1"].Leases == 2
	})
	m.end("8610000001", "conference-reasserted")
	m.end("8610000002", "conference-orphaned")
	s.noSlots("u1")
}
