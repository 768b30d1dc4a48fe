package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/workflows"
)

// place places a conference and returns the reason if it is refused.
func (d conferenceTest) place(t *testing.T, in workflows.PlaceInput) (workflows.PlaceReply, berth.Code) {
	t.Helper()
	reply, err := d.PlaceConference(t.Context(), in)
	require.NoError(t, err)
	return reply, reply.Code
}

// end ends a conference that was placed.
func (d conferenceTest) end(t *testing.T, in workflows.PlaceInput, reply workflows.PlaceReply) {
	t.Helper()
	over := workflows.Placed(in.Conference, reply.Owner, in.At)
	over.Status, over.Owner, over.Revision = berth.ConferenceEnded, berth.ConferenceOwner{}, over.Revision+1
	require.Zero(t, d.save(t, workflows.SaveInput{Conference: over, Release: []workflows.HeldSlot{{Assignment: reply.Slot}}}))
}

func (d conferenceTest) licences(t *testing.T) int {
	t.Helper()
	used, _, err := d.Scripts.Licences(t.Context(), "")
	require.NoError(t, err)
	return used
}

// C22, C16: a creation without a free licence leaves nothing: no slot, no row and nothing in the ledger.
func TestPlaceConference_NoLicence_IsRefused(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	d.Licences, d.WaitingKeepsLicence = 1, true
	d.unit(t, "u1", "", 9)
	first := request("1001")
	held, code := d.place(t, first)
	require.Empty(t, code)
	refused, code := d.place(t, request("1002"))
	require.Equal(t, berth.CodeNoLicence, code)
	require.Equal(t, "no free licence: all 1 are in use, one for each conference", refused.Message)
	require.Zero(t, refused.Slot)

	// A slot that was reserved while another conference took the last licence is released.
	second := request("1002")
	slot, err := d.assign(t.Context(), second)
	require.NoError(t, err)
	refused, err = d.placed(t.Context(), second, slot, nil)
	require.NoError(t, err)
	require.Equal(t, berth.CodeNoLicence, refused.Code)
	require.Zero(t, refused.Events)
	require.Equal(t, 1, d.leases(t, "u1"))
	require.Equal(t, 1, d.licences(t))
	_, err = d.Ledger.FindConference(t.Context(), "1002")
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
	_, ok := d.row(t, "1002")
	require.False(t, ok)

	_, code = d.place(t, first)
	require.Empty(t, code, "tried again, it has one")
	d.end(t, first, held)
	require.Zero(t, d.licences(t))
	_, code = d.place(t, second)
	require.Empty(t, code)
}

// C22: a conference that waits for recovery keeps its licence, also when Redis lost it.
func TestPlaceConference_WaitingKeepsLicence_OthersAreRefused(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	d.Licences, d.WaitingKeepsLicence = 1, true
	d.unit(t, "u1", "", 1)
	in := request("1001", waits)
	other := request("1002")
	held, code := d.place(t, other)
	require.Empty(t, code)
	_, code = d.place(t, in)
	require.Equal(t, berth.CodeNodeFull, code, "it waits for room alone")
	require.Equal(t, 2, d.licences(t))
	d.end(t, other, held)
	require.Equal(t, []string{"conference:1001 capacity"}, d.temporal.signalled())
	_, code = d.place(t, request("1003"))
	require.Equal(t, berth.CodeNoLicence, code)
	key := d.Scripts.Keys().Licences()
	require.NoError(t, d.redis.Del(t.Context(), key).Err())
	require.NoError(t, d.redis.SAdd(t.Context(), key, "1003").Err())
	in.Conference.Revision++
	found, code := d.place(t, in)
	require.Empty(t, code)
	require.Equal(t, 2, found.Events, "that it is lost, and where it is: it never waited for one")
	require.Equal(t, 2, d.licences(t))
}

// C22, C2: if it does not keep it, a waiting conference needs a licence as well as capacity, reports which one is missing, and
// is notified of a free licence, whatever released it.
func TestPlaceConference_LicenceReleasedWhileWaiting_NextIsNotified(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	d.Licences = 1
	d.unit(t, "u1", "", 1)
	zone := func(in *workflows.PlaceInput) { in.Conference.Zone = "there" }
	was := request("1001", zone)
	d.unit(t, "u2", "there", 1)
	lost, code := d.place(t, was)
	require.Empty(t, code)
	_, err := d.Scripts.WithdrawNode(t.Context(), "u2", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return d.Fleet.Snapshot().Nodes["u2"].State == berth.NodeDead }, 10*time.Second, time.Millisecond)
	before := request("1002", waits)
	_, code = d.place(t, before)
	require.Equal(t, berth.CodeNoLicence, code)

	in := request("1001", zone, waits)
	in.Conference.Epoch, in.Conference.Revision, in.Release = lost.Owner.Epoch, 5, []workflows.HeldSlot{{Assignment: lost.Slot}}
	_, code = d.place(t, in)
	require.Equal(t, berth.CodeNoNode, code)
	require.Zero(t, d.licences(t), "released")
	require.Equal(t, []string{"conference:1002 capacity"}, d.temporal.signalled(), "there is no room in the other one's zone")
	_, code = d.place(t, in)
	require.Equal(t, berth.CodeNoNode, code)
	require.Empty(t, d.temporal.signalled(), "it had none")

	before.Conference.Revision++
	found, code := d.place(t, before)
	require.Empty(t, code)
	require.Positive(t, found.Owner.Epoch)
	d.unit(t, "u3", "there", 1)
	in.Conference.Revision++
	_, code = d.place(t, in)
	require.Equal(t, berth.CodeNoLicence, code)
	kept, err := d.Ledger.FindConference(t.Context(), "1001")
	require.NoError(t, err)
	require.Contains(t, kept.Waiting, "licence")
	require.Equal(t, berth.ConferenceAwaitingRecovery, kept.Status)

	d.end(t, before, found)
	require.Equal(t, []string{"conference:1001 capacity"}, d.temporal.signalled(), "by the licence: the slot is in another zone")
	in.Conference.Revision++
	again, code := d.place(t, in)
	require.Empty(t, code)
	require.Equal(t, "u3", again.Owner.NodeID)
	require.Equal(t, 1, d.licences(t))

	// A conference that units failed releases its licence without notifying others, which would fail in the same way.
	third := request("1003", waits)
	_, code = d.place(t, third)
	require.Equal(t, berth.CodeNoLicence, code)
	require.NoError(t, d.redis.Del(t.Context(), d.Scripts.Keys().Licences()).Err())
	third.Conference.Revision++
	tried, code := d.place(t, third)
	require.Empty(t, code)
	third.Conference.Revision, third.Conference.Epoch, third.Release = 9, tried.Owner.Epoch, []workflows.HeldSlot{{Assignment: tried.Slot}}
	third.Failed = []berth.NodeRef{{NodeID: tried.Owner.NodeID, Generation: tried.Owner.Generation}}
	_, code = d.place(t, third)
	require.Equal(t, berth.CodeNodeFull, code)
	require.Zero(t, d.licences(t))
	require.Empty(t, d.temporal.signalled())
}

// C22, L12: open conferences restore their licences in a Redis that lost them, even beyond the limit.
func TestSaveConference_RedisLosesLicences_AreRestored(t *testing.T) {
	t.Parallel()
	d := conferences(t)
	d.unit(t, "u1", "", 9)
	var open []berth.Conference
	for _, number := range []string{"1001", "1002"} {
		in := request(number)
		reply, code := d.place(t, in)
		require.Empty(t, code)
		open = append(open, workflows.Placed(in.Conference, reply.Owner, in.At))
	}
	lost := request("1003", waits).Conference
	require.NoError(t, d.redis.Del(t.Context(), d.Scripts.Keys().Licences()).Err())
	d.Licences = 1
	for keeps, want := range map[bool]int{false: 2, true: 3} {
		d.WaitingKeepsLicence = keeps
		for _, is := range append(open[:2:2], lost) {
			require.Zero(t, d.save(t, workflows.SaveInput{Conference: is}))
		}
		require.Equal(t, want, d.licences(t), keeps)
		_, code := d.place(t, request("1004"))
		require.Equal(t, berth.CodeNoLicence, code)
	}
}
