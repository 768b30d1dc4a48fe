package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/fleet"
	"berth/internal/placement"
	"berth/internal/testredis"
	"berth/lua"
	"berth/workflows"
)

const enES = "translate:en-es"

// turnTest is the activities of turns on a real Redis, with translating nodes.
type turnTest struct {
	*Turns
	t      *testing.T
	server *testredis.Server
}

func newTurnTest(t *testing.T, nodes ...string) turnTest {
	t.Helper()
	server := testredis.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	f := fleet.New(s, fleet.Options{Settle: 5 * time.Millisecond, Tick: fleetTick, Logger: logger})
	h := turnTest{t: t, server: server, Turns: &Turns{
		NodeSlots: NodeSlots{s, f, logger}, Placer: placement.New(s, f),
		StreamTTL: time.Hour, StreamTrim: 1000,
	}}
	for _, id := range nodes {
		h.register(id, 1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Fleet.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); _ = rdb.Close() })
	return h
}

func (h turnTest) register(id string, startedAt int64) int64 {
	h.t.Helper()
	r, err := h.Scripts.RegisterNode(h.t.Context(), berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: startedAt},
		Capabilities: []string{enES}, MaxConcurrentJobs: 2,
	}, lua.Registration{})
	require.NoError(h.t, err)
	return r.Generation
}

func (h turnTest) leases(id string) int {
	h.t.Helper()
	nodes, err := h.Scripts.ReadNodes(h.t.Context(), id)
	require.NoError(h.t, err)
	return nodes[id].Leases
}

func jobOf(turn string, index int) workflows.DispatchInput {
	return workflows.DispatchInput{JobRequest: berth.JobRequest{
		Job:       berth.Job{SessionID: "s1", TurnID: turn, JobID: fmt.Sprintf("%s-%d", turn, index), Dispatch: 1},
		RequestID: fmt.Sprintf("%s-r%d", turn, index), PoolID: enES,
	}}
}

func applicationError(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app
}

func TestDispatchJob_NodeHasCapacity_ReservesASlot(t *testing.T) { // A3-A5, L6
	t.Parallel()
	h := newTurnTest(t, "n1", "n2")
	first, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	require.Equal(t, berth.AffinityFirst, first.Affinity)
	require.Equal(t, enES, first.PoolID)
	require.Equal(t, 1, h.leases(first.NodeID))

	again, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	again.Existed = first.Existed
	require.Equal(t, first, again, "the same dispatch, the same answer")
	require.Equal(t, 1, h.leases(first.NodeID))

	second, err := h.DispatchJob(t.Context(), jobOf("t1", 1))
	require.NoError(t, err)
	require.Equal(t, berth.AffinityHit, second.Affinity)

	require.NoError(t, h.ReleaseSlots(t.Context(), workflows.HeldSlots{Slots: []workflows.HeldSlot{{Assignment: first}, {Assignment: first}}}))
	require.Equal(t, 1, h.leases(first.NodeID))
	_, err = h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.Equal(t, workflows.ErrorExpired, applicationError(t, err).Type(), "its slot is another's by now")
	redispatch := jobOf("t1", 0)
	redispatch.Dispatch = 2
	_, err = h.DispatchJob(t.Context(), redispatch)
	require.NoError(t, err)

	other := jobOf("t2", 5)
	other.RequestID = "t1-r1"
	_, err = h.DispatchJob(t.Context(), other)
	require.Equal(t, string(berth.CodeConflict), applicationError(t, err).Type(), "a request id of another job")
}

func TestDispatchJob_NoNode_ReportsTheReasons(t *testing.T) { // L9, S4
	t.Parallel()
	h := newTurnTest(t, "n1")
	for i := range 2 {
		_, err := h.DispatchJob(t.Context(), jobOf("t1", i))
		require.NoError(t, err)
	}
	_, err := h.DispatchJob(t.Context(), jobOf("t1", 2))
	app := applicationError(t, err)
	require.Equal(t, string(berth.CodeNodeFull), app.Type())
	var detail berth.Refusal
	require.NoError(t, app.Details(&detail))
	require.Positive(t, detail.Reasons[berth.ExcludeFull])

	unassigned := jobOf("t2", 0)
	unassigned.PoolID = "translate:en-xx"
	_, err = h.DispatchJob(t.Context(), unassigned)
	app = applicationError(t, err)
	require.Equal(t, string(berth.CodeNoNode), app.Type())
	require.NoError(t, app.Details(&detail))
	require.Equal(t, []string{"translate:en-xx"}, detail.Missing)
	require.Contains(t, app.Message(), "translate:en-xx")
}

func TestDispatchJob_ServiceUnavailable_NodeIsExcluded(t *testing.T) { // L10
	t.Parallel()
	for _, service := range []string{"translate", enES} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			h := newTurnTest(t, "n1", "n2")
			_, err := h.Scripts.MarkUnavailable(t.Context(), "n1", service, time.Hour)
			require.NoError(t, err)
			for i := range 2 {
				a, err := h.DispatchJob(t.Context(), jobOf(fmt.Sprint("t", i), 0))
				require.NoError(t, err)
				require.Equal(t, "n2", a.NodeID)
			}
		})
	}
}

// A11: the generation that failed the job is excluded; its node is eligible once it has registered again.
func TestDispatchJob_FailedGeneration_IsExcludedUntilItRegistersAgain(t *testing.T) {
	t.Parallel()
	h := newTurnTest(t, "n1")
	first, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	redispatch := jobOf("t1", 0)
	redispatch.Dispatch, redispatch.AffinityNodeID = 2, "n1"
	redispatch.Excluded = []berth.NodeRef{{NodeID: "n1", Generation: first.Generation}, {NodeID: "n1", Generation: first.Generation - 1}}
	_, err = h.DispatchJob(t.Context(), redispatch)
	require.Equal(t, string(berth.CodeNoNode), applicationError(t, err).Type())

	generation := h.register("n1", 2)
	require.Eventually(t, func() bool {
		a, err := h.DispatchJob(t.Context(), redispatch)
		return err == nil && a.Generation == generation
	}, 10*time.Second, 5*time.Millisecond)
}

// A node that was unresponsive on another job is chosen only if there is no other.
func TestDispatchJob_AvoidedNode_IsChosenOnlyIfAlone(t *testing.T) {
	t.Parallel()
	h := newTurnTest(t, "n1", "n2")
	first, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	wants := []string{"n2", "n2", "n1"}
	if first.NodeID == "n2" {
		wants = []string{"n1", "n1", "n2"}
	}
	for i, want := range wants {
		next := jobOf("t1", i+1)
		next.Avoided = []berth.NodeRef{{NodeID: first.NodeID, Generation: first.Generation}}
		a, err := h.DispatchJob(t.Context(), next)
		require.NoError(t, err)
		require.Equal(t, want, a.NodeID)
	}
}

// ageHeartbeat moves a node's last heartbeat into the past.
func ageHeartbeat(t *testing.T, server *testredis.Server, s *lua.Scripts, id string, kind berth.NodeKind, since time.Duration) {
	t.Helper()
	rdb := server.Client()
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	require.NoError(t, rdb.HSet(t.Context(), s.Keys().Sweep(), "last_ms", now.UnixMilli(), "seen_from_ms", 1).Err())
	require.NoError(t, rdb.ZIncrBy(t.Context(), s.Keys().NodeBeats(string(kind)), -float64(since.Milliseconds()), id).Err())
}

// L11: an unresponsive node is reported, so that jobs of other turns avoid it; a node that heartbeats is not affected.
func TestReleaseSlots_UnresponsiveNode_IsReported(t *testing.T) {
	t.Parallel()
	h := newTurnTest(t, "n1")
	state := func() berth.NodeState {
		nodes, err := h.Scripts.ReadNodes(t.Context(), "n1")
		require.NoError(t, err)
		return nodes["n1"].State
	}
	a, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	fell := workflows.HeldSlots{Slots: []workflows.HeldSlot{{Assignment: a, Unresponsive: true}}}
	ageHeartbeat(t, h.server, h.Scripts, "n1", berth.NodeTranslate, time.Second)
	require.NoError(t, h.ReleaseSlots(t.Context(), fell))
	require.Equal(t, berth.NodeReady, state())
	ageHeartbeat(t, h.server, h.Scripts, "n1", berth.NodeTranslate, 6*time.Second)
	require.NoError(t, h.ReleaseSlots(t.Context(), workflows.HeldSlots{Slots: []workflows.HeldSlot{{Assignment: a}}}))
	require.Equal(t, berth.NodeReady, state())
	require.NoError(t, h.ReleaseSlots(t.Context(), fell))
	require.Equal(t, berth.NodeSuspect, state())
	require.Zero(t, h.leases("n1"))
	_, err = h.DispatchJob(t.Context(), jobOf("t2", 0))
	require.Equal(t, string(berth.CodeNoNode), applicationError(t, err).Type())
}

// L11: while Redis is unavailable a dispatch is refused and may be retried, and all other activities fail retryably.
func TestTurns_RedisUnavailable_FailRetryably(t *testing.T) {
	t.Parallel()
	h := newTurnTest(t, "n1")
	a, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	h.server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = h.DispatchJob(ctx, jobOf("t1", 1))
	app := applicationError(t, err)
	require.Equal(t, string(berth.CodeUnavailable), app.Type())
	require.True(t, app.NonRetryable())
	slots := workflows.HeldSlots{Slots: []workflows.HeldSlot{{Assignment: a, Left: time.Minute}}}
	_, confirm := h.ConfirmSlots(ctx, slots)
	for name, err := range map[string]error{
		"confirm": confirm, "release": h.ReleaseSlots(ctx, slots),
		"finalize": h.FinalizeTurn(ctx, workflows.TurnRef{SessionID: "s1", TurnID: "t1"}),
		"publish":  h.PublishTurn(ctx, workflows.TurnEvents{UserID: "alice", SessionID: "s1", TurnID: "t1", First: 1, Events: []berth.SessionEvent{{Type: berth.EventTurn}}}),
	} {
		require.False(t, applicationError(t, err).NonRetryable(), name)
	}
}

func TestDispatchJob_FleetNotRead_Waits(t *testing.T) {
	t.Parallel()
	s := lua.New(nil, lua.Keys{})
	f := fleet.New(s, fleet.Options{})
	turns := &Turns{NodeSlots: NodeSlots{s, f, slog.New(slog.DiscardHandler)}, Placer: placement.New(s, f)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := turns.DispatchJob(ctx, jobOf("t1", 0))
	require.Equal(t, string(berth.CodeUnavailable), applicationError(t, err).Type())
}

func TestConfirmSlots_HeldAndLost_ReportsEach(t *testing.T) { // L7
	t.Parallel()
	h := newTurnTest(t, "n1")
	var warnings strings.Builder
	h.Logger = slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	stranger := a
	stranger.LeaseID = "never"
	gone := a
	gone.NodeID = "n9"
	kept, err := h.ConfirmSlots(t.Context(), workflows.HeldSlots{Slots: []workflows.HeldSlot{
		{Assignment: a, Left: time.Hour}, {Assignment: stranger, Left: time.Hour}, {Assignment: gone, Left: time.Hour},
	}})
	require.NoError(t, err)
	require.Equal(t, []workflows.ConfirmedSlot{{Held: true, Generation: a.Generation}, {Generation: a.Generation}, {}}, kept.Slots)
	until, err := h.server.Client().ZScore(t.Context(), h.Scripts.Keys().NodeSlots("n1"), a.LeaseID).Result()
	require.NoError(t, err)
	require.Greater(t, until, float64(time.Now().Add(30*time.Minute).UnixMilli()))
	require.Contains(t, warnings.String(), "code=LOST")

	warnings.Reset()
	_, err = h.Scripts.WithdrawNode(t.Context(), "n1", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	kept, err = h.ConfirmSlots(t.Context(), workflows.HeldSlots{Slots: []workflows.HeldSlot{{Assignment: a, Left: time.Hour}}})
	require.NoError(t, err)
	require.False(t, kept.Slots[0].Held)
	require.Empty(t, warnings.String(), "a node that leaves lets its job finish")
}

func TestFinalizeTurn_FinalizedOrWithdrawn_DeletesAffinity(t *testing.T) { // A6
	t.Parallel()
	h := newTurnTest(t, "n1")
	ref := workflows.TurnRef{SessionID: "s1", TurnID: "t1", Withdraw: true}
	_, err := h.DispatchJob(t.Context(), jobOf("t1", 0))
	require.NoError(t, err)
	require.NoError(t, h.FinalizeTurn(t.Context(), ref))
	a, err := h.DispatchJob(t.Context(), jobOf("t1", 1))
	require.NoError(t, err)
	require.Equal(t, berth.AffinityFirst, a.Affinity)
	ref.Withdraw = false
	for range 2 {
		require.NoError(t, h.FinalizeTurn(t.Context(), ref))
	}
	_, err = h.DispatchJob(t.Context(), jobOf("t1", 2))
	require.Equal(t, string(berth.CodeTurnFinalized), applicationError(t, err).Type())
}

func TestPublishTurn_Repeated_AppendsOnce(t *testing.T) { // A10
	t.Parallel()
	h := newTurnTest(t)
	zero := 0
	in := workflows.TurnEvents{UserID: "alice", SessionID: "s1", TurnID: "t1", First: 1, Events: []berth.SessionEvent{
		{Type: berth.EventTurn, SessionID: "s1", TurnID: "t1", SpeakerID: "bob"},
		{Type: berth.EventTranslation, SessionID: "s1", TurnID: "t1", JobID: "t1-0", Index: &zero, NodeID: "n1", Text: "hola\n</script>"},
	}}
	for range 3 {
		require.NoError(t, h.PublishTurn(t.Context(), in))
	}
	_, entries, err := h.Scripts.ReadStream(t.Context(), lua.SessionChannel("alice", "s1"), "", 10)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for i, e := range entries {
		var ev berth.SessionEvent
		require.NoError(t, json.Unmarshal([]byte(e.Data), &ev))
		require.InDelta(t, time.Now().UnixMilli(), ev.TS, 60_000)
		ev.TS = 0
		require.Equal(t, in.Events[i], ev)
	}
}

// L12: a master that lacks an event which was confirmed to the turn, or to the conference, continues with a new generation of ids.
func TestPublish_OlderMaster_ContinuesInNewGeneration(t *testing.T) {
	t.Parallel()
	h, d := newTurnTest(t), conferences(t)
	unit := d.unit(t, "u1", "", 9)
	open := request("1001").Conference
	open.Status, open.Owner, open.Revision = berth.ConferenceOpen, berth.ConferenceOwner{NodeID: "u1", Generation: unit, Epoch: 1}, 9
	for name, c := range map[string]struct {
		scripts *lua.Scripts
		rdb     *redis.Client
		channel lua.Channel
		publish func(n, confirmed int)
	}{
		"turn": {h.Scripts, h.server.Client(), lua.SessionChannel("alice", "s1"), func(n, _ int) {
			require.NoError(t, h.PublishTurn(t.Context(), workflows.TurnEvents{
				UserID: "alice", SessionID: "s1", TurnID: "t1", First: n, Events: []berth.SessionEvent{{Type: berth.EventTurn, Text: strconv.Itoa(n)}},
			}))
		}},
		"conference": {d.Scripts, d.redis, lua.ConferenceChannel(open.UserID, open.E164), func(n, confirmed int) {
			d.save(t, workflows.SaveInput{
				Conference: open, FirstEvent: 10 * n, Confirmed: 10 * confirmed, Events: []berth.ConferenceEvent{open.Event(time.Now())},
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			keys := []string{
				c.scripts.Keys().Stream(c.channel.UserID, c.channel.ServiceID, c.channel.TaskID),
				c.scripts.Keys().StreamMeta(c.channel.UserID, c.channel.ServiceID, c.channel.TaskID),
			}
			generations := func() (all []string) {
				_, entries, err := c.scripts.ReadStream(t.Context(), c.channel, "", 10)
				require.NoError(t, err)
				for _, e := range entries {
					gen, _, _ := strings.Cut(e.ID, "-")
					all = append(all, gen)
				}
				return all
			}
			c.publish(1, 0)
			c.publish(2, 1)
			for _, key := range keys {
				require.NoError(t, c.rdb.Copy(t.Context(), key, key+":older", 0, false).Err())
			}
			c.publish(3, 2)
			all := generations()
			require.Equal(t, []string{all[0], all[0], all[0]}, all, "nothing is lost")
			for _, key := range keys {
				require.NoError(t, c.rdb.Rename(t.Context(), key+":older", key).Err())
			}
			c.publish(4, 3)
			after := generations()
			require.Equal(t, all[:2], after[:2])
			require.Len(t, after, 3)
			require.Greater(t, after[2], all[0])
		})
	}
}
