package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"berth"
	"berth/internal/starter"
	"berth/internal/testledger"
	"berth/lua"
	"berth/workflows"
)

// fakeTemporal records signals.
type fakeTemporal struct {
	client.Client
	signals chan string
	gone    []string // numbers without a running workflow
	notices chan workflows.UnitNotice
	started []string // workflow ids
}

func (s *fakeTemporal) SignalWorkflow(_ context.Context, id, _, signal string, arg any) error {
	if slices.Contains(s.gone, id) {
		return serviceerror.NewNotFound("no such workflow")
	}
	if s.signals == nil {
		return errors.New("Temporal is unavailable")
	}
	s.signals <- id + " " + signal
	if n, ok := arg.(workflows.UnitNotice); ok {
		s.notices <- n
	}
	return nil
}

// signalled returns the signals since the last call, sorted.
func (s *fakeTemporal) signalled() (out []string) {
	for len(s.signals) > 0 {
		out = append(out, <-s.signals)
	}
	slices.Sort(out)
	return out
}

type conferenceTest struct {
	*Conferences
	links    *Links
	temporal *fakeTemporal
	x        *Executions
	redis    *redis.Client
}

// conferences returns the activities on a real Redis and ledger, with a fleet that follows Redis.
func conferences(t *testing.T) conferenceTest {
	t.Helper()
	x, server := executions(t)
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	temporal := &fakeTemporal{signals: make(chan string, 1000), notices: make(chan workflows.UnitNotice, 1000)}
	return conferenceTest{
		&Conferences{NodeSlots: x.NodeSlots, Ledger: l, Placer: x.Placer, Starter: &starter.Starter{Client: temporal}, StreamTTL: time.Hour},
		&Links{Starter: &starter.Starter{Client: temporal}, Ledger: l, Scripts: x.Scripts, Logger: x.Logger}, temporal, x, server.Client(),
	}
}

// unit registers a media unit.
func (d conferenceTest) unit(t *testing.T, id, zone string, slots int) int64 {
	t.Helper()
	r, err := d.Scripts.RegisterNode(t.Context(), berth.NodeSpec{
		ID: id, Kind: berth.NodeMedia, MaxConcurrentJobs: slots, Capabilities: []string{berth.CapabilityConference}, Zone: zone,
		Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: time.Now().UnixNano()},
	}, lua.Registration{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return d.Fleet.Snapshot().Nodes[id].Generation == r.Generation }, 10*time.Second, time.Millisecond)
	return r.Generation
}

// request returns the first placement of a conference of alice.
func request(e164 string, set ...func(*workflows.PlaceInput)) workflows.PlaceInput {
	now := time.Now().UTC().Truncate(time.Millisecond)
	in := workflows.PlaceInput{
		Conference: berth.Conference{
			ConferenceSpec: berth.ConferenceSpec{E164: e164, EndAt: now.Add(time.Hour), Recoverable: true},
			ID:             "c-" + e164, UserID: "alice", Status: berth.ConferenceCreating, CreatedAt: now, Revision: 1,
		},
		First: true, FirstEvent: 1, Hold: 30 * time.Second, At: now,
	}
	for _, f := range set {
		f(&in)
	}
	return in
}

// waits returns a placement of a conference that was lost.
func waits(in *workflows.PlaceInput) {
	in.First = false
	in.Conference.Status, in.Conference.LostAt = berth.ConferenceAwaitingRecovery, in.At
	in.Events = []berth.ConferenceEvent{in.Conference.Event(in.At)}
}

func (d conferenceTest) row(t *testing.T, e164 string) (lua.ConferenceRow, bool) {
	t.Helper()
	r, ok, err := d.Scripts.ConferenceRow(t.Context(), e164)
	require.NoError(t, err)
	return r, ok
}

func (d conferenceTest) leases(t *testing.T, id string) int {
	t.Helper()
	nodes, err := d.Scripts.ReadNodes(t.Context(), id)
	require.NoError(t, err)
	return nodes[id].Leases
}

// C12, C16: a slot is reserved, the row is written to the ledger and to Redis, and the event is published.
func TestPlaceConference_CapacityAndNone_WritesOwnerOrNothing(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	generation := d.unit(t, "u1", "", 1)
	in := request("1001")
	reply, err := d.PlaceConference(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "u1", reply.Owner.NodeID)
	require.Equal(t, generation, reply.Owner.Generation)
	require.Equal(t, "u1", reply.Owner.Incarnation.Host)
	require.Positive(t, reply.Owner.Epoch)
	require.Equal(t, fmt.Sprintf("conference:c-1001:%d", reply.Owner.Epoch), reply.Slot.LeaseID)
	require.Equal(t, 1, reply.Events)
	kept, err := d.Ledger.FindConference(t.Context(), "1001")
	require.NoError(t, err)
	require.Equal(t, workflows.Placed(in.Conference, reply.Owner, in.At), kept)
	row, ok := d.row(t, "1001")
	require.True(t, ok)
	require.Equal(t, berth.ConferenceCreating, row.Status)
	require.Equal(t, reply.Owner.Epoch, row.Epoch)
	require.True(t, in.At.Equal(row.StartedAt))

	full, err := d.PlaceConference(t.Context(), request("1002"))
	require.NoError(t, err)
	require.Equal(t, berth.CodeNodeFull, full.Code)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeFull: 1}, full.Refusal.Reasons)
	_, err = d.Ledger.FindConference(t.Context(), "1002")
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err), "it leaves nothing")
	_, ok = d.row(t, "1002")
	require.False(t, ok)

	// An end releases the slot and notifies a waiting conference.
	w, err := d.PlaceConference(t.Context(), request("1003", waits))
	require.NoError(t, err)
	require.Equal(t, berth.CodeNodeFull, w.Code)
	require.Equal(t, 2, w.Events, "that it is lost, and why it waits")
	kept, err = d.Ledger.FindConference(t.Context(), "1003")
	require.NoError(t, err)
	require.Equal(t, w.Message, kept.Waiting)
	over := workflows.Placed(in.Conference, reply.Owner, in.At)
	over.Status, over.Owner, over.Revision = berth.ConferenceEnded, berth.ConferenceOwner{}, over.Revision+1
	for range 2 { // idempotent
		require.Zero(t, d.save(t, workflows.SaveInput{
			Conference: over, Release: []workflows.HeldSlot{{Assignment: reply.Slot}}, FirstEvent: 2, Events: []berth.ConferenceEvent{over.Event(in.At)},
		}))
		require.Equal(t, []string{"conference:1003 capacity"}, d.temporal.signalled(), "C2")
	}
	_, ok = d.row(t, "1001")
	require.False(t, ok, "C17")
	require.Zero(t, d.leases(t, "u1"))
	_, said, err := d.Scripts.ReadStream(t.Context(), lua.ConferenceChannel("alice", "1001"), "", 10)
	require.NoError(t, err)
	require.Len(t, said, 2)
}

// save saves a conference.
func (d *conferenceTest) save(t *testing.T, in workflows.SaveInput) workflows.SaveReply {
	t.Helper()
	reply, err := d.SaveConference(t.Context(), in)
	require.NoError(t, err)
	return reply
}

// FC8: the unit of an open conference dies before that is saved as its own, so that its death is reported to no conference.
func TestSaveConference_OwnerNotRegistered_IsReturned(t *testing.T) { // C1
	t.Parallel()
	d := conferences(t)
	d.unit(t, "u1", "", 1)
	placed, err := d.PlaceConference(t.Context(), request("1001"))
	require.NoError(t, err)
	open := workflows.Placed(request("1001").Conference, placed.Owner, time.Now())
	open.Status = berth.ConferenceOpen
	in := workflows.SaveInput{Conference: open, Hold: &workflows.HeldSlot{Assignment: placed.Slot, Left: time.Hour}}
	require.Zero(t, d.save(t, in))
	_, err = d.Scripts.WithdrawNode(t.Context(), "u1", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	require.Equal(t, workflows.SaveReply{Gone: true, Dead: true}, d.save(t, in))
	d.unit(t, "u1", "", 1)
	require.Equal(t, workflows.SaveReply{Gone: true}, d.save(t, in), "its next generation may list it")
	require.NoError(t, d.redis.FlushAll(t.Context()).Err())
	require.Equal(t, workflows.SaveReply{Gone: true}, d.save(t, in), "Redis does not know it")
}

// C7, L12: an existing copy takes a slot beyond the capacity; C4: so does one that continues.
func TestPrepareAdoption_UnitRegistered_SlotIsHeld(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	generation := d.unit(t, "u1", "", 1)
	reply, err := d.PlaceConference(t.Context(), request("1001"))
	require.NoError(t, err)
	adopted, err := d.PrepareAdoption(t.Context(), workflows.AdoptionInput{
		E164: "1002", ConferenceID: "c-1002", Unit: berth.NodeRef{NodeID: "u1", Generation: generation}, Hold: time.Minute,
	})
	require.NoError(t, err)
	require.False(t, adopted.Gone)
	require.Positive(t, adopted.Epoch)
	require.Equal(t, 2, d.leases(t, "u1"), "beyond its capacity")
	gone, err := d.PrepareAdoption(t.Context(), workflows.AdoptionInput{E164: "1002", ConferenceID: "c-1002", Unit: berth.NodeRef{NodeID: "u1", Generation: 1}, Hold: time.Minute})
	require.NoError(t, err)
	require.True(t, gone.Gone)

	require.NoError(t, d.redis.Del(t.Context(), d.Scripts.Keys().NodeSlots("u1")).Err())
	open := workflows.Placed(request("1001").Conference, reply.Owner, time.Now())
	open.Status = berth.ConferenceOpen
	require.Zero(t, d.save(t, workflows.SaveInput{
		Conference: open, Hold: &workflows.HeldSlot{Assignment: reply.Slot, Left: time.Hour},
	}))
	require.Equal(t, 1, d.leases(t, "u1"))
	stand, err := readUnitState(t.Context(), d.Scripts, "u1")
	require.NoError(t, err)
	require.Equal(t, generation, stand.Generation)
	stand, err = readUnitState(t.Context(), d.Scripts, "u2")
	require.NoError(t, err)
	require.Zero(t, stand.Generation)
}

// A conference with a zone is placed on a unit of that zone, for any name of a zone.
func TestPlaceConference_Zone_OnlyItsUnits(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	d.unit(t, "here", "", 9)
	d.unit(t, "there", "Málaga 2", 1)
	zone := func(name string) func(*workflows.PlaceInput) {
		return func(in *workflows.PlaceInput) { in.Conference.Zone = name }
	}
	reply, err := d.PlaceConference(t.Context(), request("1001", zone("Málaga 2")))
	require.NoError(t, err)
	require.Equal(t, "there", reply.Owner.NodeID)
	reply, err = d.PlaceConference(t.Context(), request("1002", zone("Málaga 2"), waits))
	require.NoError(t, err)
	require.Equal(t, berth.CodeNodeFull, reply.Code)
	reply, err = d.PlaceConference(t.Context(), request("1003", zone("nowhere")))
	require.NoError(t, err)
	require.Equal(t, berth.CodeNoNode, reply.Code)
	require.Equal(t, "no media unit is registered in zone nowhere", reply.Message)
	require.Empty(t, d.Fleet.Snapshot().Pools, "requests define no pools")

	require.NoError(t, d.links.WakeWaiting(t.Context(), berth.NodeRef{NodeID: "here", Generation: d.Fleet.Snapshot().Nodes["here"].Generation}))
	require.Empty(t, d.temporal.signalled(), "it waits for another zone")
	generation := d.unit(t, "there2", "Málaga 2", 1)
	require.NoError(t, d.links.WakeWaiting(t.Context(), berth.NodeRef{NodeID: "there2", Generation: generation}))
	require.Equal(t, []string{"conference:1002 capacity"}, d.temporal.signalled())
	reply, err = d.PlaceConference(t.Context(), request("1002", zone("Málaga 2"), waits))
	require.NoError(t, err)
	require.Equal(t, "there2", reply.Owner.NodeID)
}

// C2: as many conferences are notified as there is capacity for, the longest waiting first, however many wait for a full zone.
func TestWakeFor_Capacity_NotifiesThatManyWaiting(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	wait := func(i int, zone string) {
		in := request(strconv.Itoa(1000+i), waits, func(in *workflows.PlaceInput) {
			in.Conference.Zone, in.Conference.LostAt = zone, now.Add(time.Duration(i)*time.Millisecond)
		})
		require.NoError(t, d.Ledger.SaveConference(t.Context(), in.Conference))
	}
	for i := range 100 {
		wait(i, "nowhere")
	}
	for i, zone := range []string{"Málaga 2", "Málaga 2", "", ""} {
		wait(100+i, zone)
	}
	d.unit(t, "here", "", 1)
	d.unit(t, "there", "Málaga 2", 1)
	_, err := d.Scripts.RestoreNodeSlot(t.Context(), berth.Assignment{
		LeaseID: "other", NodeRef: berth.NodeRef{NodeID: "full", Generation: d.unit(t, "full", "nowhere", 1)}, PoolID: berth.CapabilityConference,
	}, time.Hour)
	require.NoError(t, err)
	require.NoError(t, d.links.WakeFor(t.Context(), []string{"here", "there", "full", "unknown"}))
	require.Equal(t, []string{"conference:1100 capacity", "conference:1102 capacity"}, d.temporal.signalled())
	require.NoError(t, d.links.WakeFor(t.Context(), nil))
	require.Empty(t, d.temporal.signalled())
}

// few is a Temporal that accepts the first signals one at a time, and the others in pairs.
type few struct {
	client.Client
	notified chan string   // signalled workflows
	under    chan struct{} // holds one token while a signal is in flight
	pair     chan struct{}
}

func (f few) SignalWorkflow(ctx context.Context, id, _, _ string, _ any) error {
	select {
	case f.under <- struct{}{}:
		defer func() { <-f.under }()
	default:
		if len(f.notified) < starter.SequentialSignals {
			return errors.New("two concurrent signals")
		}
	}
	if len(f.notified) >= starter.SequentialSignals {
		select {
		case f.pair <- struct{}{}:
		case <-f.pair:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.notified <- id
	return nil
}

// C1: of many lost conferences the first are notified sequentially, the rest concurrently, and all of them are.
func TestLoseUnit_GenerationEnds_NotifiesItsConferences(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	const many = starter.SequentialSignals + 20
	for i := range many {
		c := request(strconv.Itoa(1000 + i)).Conference
		c.Owner = berth.ConferenceOwner{NodeID: "u1", Generation: 3, Epoch: 1}
		if i == many-1 {
			c.Owner.Generation = 4
		}
		require.NoError(t, d.Ledger.SaveConference(t.Context(), c))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	temporal := few{notified: make(chan string, many), under: make(chan struct{}, 1), pair: make(chan struct{})}
	d.links.Starter = &starter.Starter{Client: temporal}
	rest := make(chan struct{}) // completes the last pair
	go func() {
		defer close(rest)
		select {
		case temporal.pair <- struct{}{}:
		case <-ctx.Done():
		}
	}()
	require.NoError(t, d.links.LoseUnit(ctx, berth.NodeNotice{NodeID: "u1", Generation: 3, Kind: berth.NodeMedia, Reason: berth.DepartureUnresponsive}))
	require.Len(t, temporal.notified, many-1, "not the one that a later generation has")
	for i := range starter.SequentialSignals {
		require.Equal(t, workflows.ConferenceWorkflowID(strconv.Itoa(1000+i)), <-temporal.notified)
	}
	cancel()
	<-rest
}

// C15: every conference of a list is notified of its entry; unknown copies are returned for release.
func TestReconcileUnit_List_NotifiesConferencesAndReturnsUnknownCopies(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	generation := d.unit(t, "u1", "", 9)
	unit := berth.NodeRef{NodeID: "u1", Generation: generation}
	epochs := make([]int64, 4)
	for i := range epochs {
		in := request(fmt.Sprintf("100%d", i))
		reply, err := d.PlaceConference(t.Context(), in)
		require.NoError(t, err)
		epochs[i] = reply.Owner.Epoch
		is := workflows.Placed(in.Conference, reply.Owner, in.At)
		is.Status, is.Revision = berth.ConferenceOpen, is.Revision+1
		if i == 3 { // ended, and a late write left its row
			is.Status, is.Owner = berth.ConferenceEnded, berth.ConferenceOwner{}
			require.NoError(t, d.Ledger.SaveConference(t.Context(), is))
			continue
		}
		require.Zero(t, d.save(t, workflows.SaveInput{Conference: is}))
	}
	known, err := d.links.ReadUnit(t.Context(), unit)
	require.NoError(t, err)
	require.Equal(t, []workflows.UnitRow{{E164: "1000", Epoch: epochs[0]}, {E164: "1001", Epoch: epochs[1]}, {E164: "1002", Epoch: epochs[2]}}, known.Rows)

	d.temporal.gone = []string{"conference:1001"}
	reply, err := d.links.ReconcileUnit(t.Context(), workflows.ReconcileInput{Unit: unit, Rows: known.Rows, List: berth.UnitList{
		Conferences: []berth.UnitCopy{
			{E164: "1000", ConferenceID: "c-1000", Epoch: epochs[0]}, {E164: "1001", ConferenceID: "c-1001", Epoch: epochs[1]}, // its workflow has just ended
			{E164: "2000", ConferenceID: "c-2000", Epoch: 3}, {E164: "1000", ConferenceID: "c-older", Epoch: 0},
		},
	}})
	require.NoError(t, err)
	require.Equal(t, []berth.UnitRelease{{E164: "1001", Epoch: epochs[1]}, {E164: "2000", Epoch: 3}, {E164: "1000", Epoch: 0}}, reply.Withdraw)
	require.Equal(t, []string{"conference:1000 unit", "conference:1002 unit"}, d.temporal.signalled())
	notified := map[bool]string{}
	for range 2 {
		n := <-d.temporal.notices
		require.Equal(t, generation, n.Generation)
		if n.Copy != nil {
			notified[false] = n.Copy.E164
		} else {
			notified[n.Missing] = fmt.Sprint(n.Epoch)
		}
	}
	require.Equal(t, map[bool]string{false: "1000", true: fmt.Sprint(epochs[2])}, notified)
	_, ok := d.row(t, "1003")
	require.False(t, ok, "what a late write left is forgotten")

	// C1: the owner's conferences are notified; the loss of an older generation has no effect.
	require.NoError(t, d.links.LoseUnit(t.Context(), berth.NodeNotice{NodeID: "u1", Generation: generation - 1, Reason: berth.DepartureSuperseded}))
	require.Empty(t, d.temporal.signalled())
	require.NoError(t, d.links.LoseUnit(t.Context(), berth.NodeNotice{NodeID: "u1", Generation: generation, Reason: berth.DepartureUnresponsive}))
	require.Equal(t, []string{"conference:1000 unit", "conference:1002 unit"}, d.temporal.signalled())
	require.Equal(t, berth.DepartureUnresponsive, (<-d.temporal.notices).Gone)
	d.temporal.signals = nil
	require.Error(t, d.links.LoseUnit(t.Context(), berth.NodeNotice{NodeID: "u1", Generation: generation, Reason: berth.DepartureUnresponsive}))
}

// L10: a unit that did not reply to a command is skipped for a period, until it acknowledges one.
func TestPlaceConference_UnresponsiveUnit_IsSkipped(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	generation := d.unit(t, "u1", "", 9)
	silent := func(generation int64) func(*workflows.PlaceInput) {
		return func(in *workflows.PlaceInput) {
			in.Unresponsive = []berth.NodeRef{{NodeID: "u1", Generation: generation}}
		}
	}
	marked := func(is bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			return d.Fleet.Snapshot().Nodes["u1"].Unavailable[berth.ServiceCommands].IsZero() != is
		}, 10*time.Second, time.Millisecond)
	}
	reply, err := d.PlaceConference(t.Context(), request("1001", silent(generation-1)))
	require.NoError(t, err)
	require.Equal(t, "u1", reply.Owner.NodeID, "another generation was silent")
	reply, err = d.PlaceConference(t.Context(), request("1002", silent(generation)))
	require.NoError(t, err)
	require.Equal(t, berth.CodeNoNode, reply.Code)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceUnavailable: 1}, reply.Refusal.Reasons)
	marked(true)
	d.unit(t, "u2", "", 9)
	reply, err = d.PlaceConference(t.Context(), request("1003"))
	require.NoError(t, err)
	require.Equal(t, "u2", reply.Owner.NodeID)

	open := request("1001").Conference
	open.Status, open.Owner, open.Revision = berth.ConferenceOpen, berth.ConferenceOwner{NodeID: "u1", Generation: generation, Epoch: 1}, 9
	require.Zero(t, d.save(t, workflows.SaveInput{Conference: open, FirstEvent: 1}))
	marked(true)
	require.Zero(t, d.save(t, workflows.SaveInput{Conference: open, FirstEvent: 1, Acknowledged: true}))
	marked(false)
}

// C3, FC5: a unit with many commands to acknowledge gets no recovery. Waiting conferences are notified when it has acknowledged one.
func TestPlaceConference_UnitHasManyCommands_RecoveryWaits(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	generation := d.unit(t, "u1", "", 100)
	var last workflows.PlaceReply
	for i := range MaxInFlight {
		reply, err := d.PlaceConference(t.Context(), request(strconv.Itoa(1000+i), waits))
		require.NoError(t, err)
		require.Equal(t, "u1", reply.Owner.NodeID)
		last = reply
	}
	reply, err := d.PlaceConference(t.Context(), request("2001", waits))
	require.NoError(t, err)
	require.Equal(t, berth.CodeUnavailable, reply.Code)
	require.Equal(t, MaxInFlight, d.leases(t, "u1"))
	first, err := d.PlaceConference(t.Context(), request("3001"))
	require.NoError(t, err)
	require.Equal(t, "u1", first.Owner.NodeID, "a creation does not wait: its caller does")
	d.temporal.signalled()

	opened := request("1031", waits).Conference
	opened.Status, opened.Owner, opened.Revision = berth.ConferenceOpen, last.Owner, 9
	saved := d.save(t, workflows.SaveInput{
		Conference: opened, FirstEvent: 10, Acknowledged: true,
		Hold: &workflows.HeldSlot{Assignment: last.Slot, Left: time.Hour},
	})
	require.Zero(t, saved)
	require.Empty(t, d.temporal.signalled(), "the unit still has as many as it may")
	opened = request("3001").Conference
	opened.Status, opened.Owner, opened.Revision = berth.ConferenceOpen, first.Owner, 9
	d.save(t, workflows.SaveInput{
		Conference: opened, FirstEvent: 10, Acknowledged: true,
		Hold: &workflows.HeldSlot{Assignment: first.Slot, Left: time.Hour},
	})
	require.Equal(t, []string{"conference:2001 capacity"}, d.temporal.signalled())
	reply, err = d.PlaceConference(t.Context(), request("2001", waits))
	require.NoError(t, err)
	require.Equal(t, berth.ConferenceOwner{NodeID: "u1", Generation: generation, Incarnation: reply.Owner.Incarnation, Epoch: reply.Owner.Epoch}, reply.Owner)
}

// A unit that did not start a command in time is unresponsive only if it does not run other commands.
func TestPlaceConference_CommandNotStarted_BusyUnitIsNotSkipped(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	u1, u2 := d.unit(t, "u1", "", berth.MaxUnitCommands), d.unit(t, "u2", "", 1)
	for i := range berth.MaxUnitCommands + 1 {
		_, err := d.PlaceConference(t.Context(), request(strconv.Itoa(1000+i)))
		require.NoError(t, err)
	}
	_, err := d.PlaceConference(t.Context(), request("2001", waits, func(in *workflows.PlaceInput) {
		in.NotStarted = []berth.NodeRef{{NodeID: "u1", Generation: u1}, {NodeID: "u2", Generation: u2}}
	}))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return !d.Fleet.Snapshot().Nodes["u2"].Unavailable[berth.ServiceCommands].IsZero()
	}, 10*time.Second, time.Millisecond)
	require.Empty(t, d.Fleet.Snapshot().Nodes["u1"].Unavailable)
}
