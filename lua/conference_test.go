package lua_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

const basic = `{"e164":"8613800000001","metadata":{"room":7}}`

func confRow(unit string, generation, epoch, revision int64, set ...func(*lua.ConferenceRow)) lua.ConferenceRow {
	r := lua.ConferenceRow{
		E164: "8613800000001", ConferenceID: "c1", NodeID: unit, Generation: generation, Epoch: epoch, Revision: revision,
		Status: berth.ConferenceOpen, StartedAt: time.UnixMilli(started),
	}
	for _, f := range set {
		f(&r)
	}
	return r
}

func put(t *testing.T, s *lua.Scripts, r lua.ConferenceRow) string {
	t.Helper()
	code, err := s.PutConference(t.Context(), r, json.RawMessage(basic), lua.Licence{})
	require.NoError(t, err)
	return code
}

func rowOf(t *testing.T, s *lua.Scripts) (lua.ConferenceRow, bool) {
	t.Helper()
	r, ok, err := s.ConferenceRow(t.Context(), "8613800000001")
	require.NoError(t, err)
	return r, ok
}

func report(t *testing.T, s *lua.Scripts, unit string, generation, epoch int64, full bool, live string) string {
	t.Helper()
	code, err := s.PutConferenceInfo(t.Context(), "8613800000001", berth.ConferenceInfo{
		NodeID: unit, Generation: generation, Epoch: epoch, Full: full, Live: json.RawMessage(live),
	})
	require.NoError(t, err)
	return code
}

func liveOf(t *testing.T, s *lua.Scripts) string {
	t.Helper()
	b, live, ok, err := s.ConferenceInfo(t.Context(), "8613800000001")
	require.NoError(t, err)
	require.True(t, ok)
	require.JSONEq(t, basic, string(b), "the basic data are kept")
	return string(live)
}

// C12: keys have the documented names, with and without a cell.
func TestConferenceKeys_AnyCell_MatchContract(t *testing.T) {
	t.Parallel()
	for cell, prefix := range map[string]string{"": "", "c1": "{c1}:"} {
		k := lua.Keys{Cell: cell}
		require.Equal(t, prefix+"confex/8613800000001", k.Conference("8613800000001"))
		require.Equal(t, prefix+"cmu/u1/confs", k.UnitConferences("u1"))
	}
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		require.Equal(t, lua.ConferenceOK, put(t, s, confRow("u1", 3, 5, 1)))
		row, err := s.Redis().HGetAll(t.Context(), s.Keys().Conference("8613800000001")).Result()
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			"owner": "u1", "generation": "3", "epoch": "5", "revision": "1", "status": "open",
			"start_ms": fmt.Sprint(int64(started)), "conference_id": "c1", "since": row["since"],
		}, row)
		require.Regexp(t, `^\d{13}$`, row["since"])
		require.Equal(t, []string{"8613800000001"}, members(t, s, s.Keys().UnitConferences("u1")))
	})
}

// C20: a decision older than the stored one changes nothing. A change of owner moves the number to the new owner's set.
func TestPutConference_OlderDecision_IsStale(t *testing.T) {
	t.Parallel()
	other := func(id string) func(*lua.ConferenceRow) { return func(r *lua.ConferenceRow) { r.ConferenceID = id } }
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		for i, step := range []struct {
			row  lua.ConferenceRow
			code string
		}{
			{confRow("u1", 1, 5, 3), lua.ConferenceOK},
			{confRow("u1", 1, 5, 3), lua.ConferenceOK}, // the same again
			{confRow("u2", 1, 6, 2), lua.ConferenceStale},
			{confRow("u2", 1, 4, 3), lua.ConferenceStale},
			{confRow("u2", 1, 6, 3), lua.ConferenceOK}, // decided again
			{confRow("", 0, 5, 4), lua.ConferenceOK},   // no owner
			{confRow("u3", 1, 4, 9, other("c0")), lua.ConferenceStale},
			{confRow("u3", 1, 7, 1, other("c2")), lua.ConferenceOK}, // the number is used again
		} {
			before, _ := rowOf(t, s)
			require.Equal(t, step.code, put(t, s, step.row), i)
			after, ok := rowOf(t, s)
			require.True(t, ok)
			if step.code == lua.ConferenceStale {
				require.Equal(t, before, after, i)
				continue
			}
			require.Equal(t, step.row, after, i)
			for _, unit := range []string{"u1", "u2", "u3"} {
				owned, err := s.UnitConferences(t.Context(), unit)
				require.NoError(t, err)
				require.Equal(t, unit == step.row.NodeID, len(owned) == 1, "%d %s", i, unit)
			}
		}
	})
}

// C17: only the row and the mapping of the ended conference are deleted.
func TestDropConference_EndedConference_IsNotRestored(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		drop := func(id string, epoch int64) string {
			code, err := s.DropConference(t.Context(), "8613800000001", id, epoch)
			require.NoError(t, err)
			return code
		}
		require.Equal(t, lua.ConferenceOK, drop("c0", 1), "no row")
		put(t, s, confRow("u1", 1, 5, 1))
		report(t, s, "u1", 1, 5, true, `{"a":1}`)
		require.Equal(t, lua.ConferenceStale, drop("c0", 4))
		_, ok := rowOf(t, s)
		require.True(t, ok)
		require.Equal(t, lua.ConferenceOK, drop("c1", 4), "its own row has any epoch")
		for _, key := range []string{s.Keys().Conference("8613800000001"), s.Keys().ConferenceInfo("8613800000001"), s.Keys().UnitConferences("u1")} {
			require.Zero(t, s.Redis().Exists(t.Context(), key).Val(), key)
		}
		require.Equal(t, lua.InfoUnknown, report(t, s, "u1", 1, 5, true, `{"a":1}`), "it is not restored")

		// A delayed write does not restore it, nor does a write of an earlier conference.
		other := func(r *lua.ConferenceRow) { r.ConferenceID = "c2" }
		require.Equal(t, lua.ConferenceStale, put(t, s, confRow("u1", 1, 5, 1)))
		require.Equal(t, lua.ConferenceStale, put(t, s, confRow("u1", 1, 9, 9)))
		require.Equal(t, lua.ConferenceStale, put(t, s, confRow("u1", 1, 3, 9, other)))
		_, ok = rowOf(t, s)
		require.False(t, ok)
		require.Equal(t, lua.InfoUnknown, report(t, s, "u1", 1, 5, true, `{"a":1}`))
		require.Equal(t, lua.ConferenceOK, put(t, s, confRow("u1", 1, 6, 1, other)), "the number is used again")
		require.Equal(t, lua.ConferenceOK, drop("c3", 8), "the row of an older conference is deleted")
		_, ok = rowOf(t, s)
		require.False(t, ok)
		require.Equal(t, lua.ConferenceOK, drop("c1", 5), "late")
		require.Equal(t, lua.ConferenceStale, put(t, s, confRow("u1", 1, 7, 1, other)), "the last ended conference is remembered")
		require.Positive(t, s.Redis().PTTL(t.Context(), s.Keys().ConferenceEnded("8613800000001")).Val(), "the marker expires")
	})
}

// C20: only the owner's information is accepted; other messages are counted. A change of owner deletes the live information.
func TestPutConferenceInfo_NotOwner_IsStale(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		require.Equal(t, lua.InfoUnknown, report(t, s, "u1", 1, 5, true, `{"a":1}`))
		_, _, ok, err := s.ConferenceInfo(t.Context(), "8613800000001")
		require.NoError(t, err)
		require.False(t, ok)
		put(t, s, confRow("u1", 1, 5, 1))
		require.Equal(t, lua.ConferenceOK, report(t, s, "u1", 1, 5, true, `{"a":1,"b":[],"c":{"x":12345678901234567890}}`))
		require.Equal(t, lua.ConferenceOK, report(t, s, "u1", 1, 5, false, `{"a":null,"d":"é\n"}`))
		require.Equal(t, `{"b":[],"c":{"x":12345678901234567890},"d":"é\n"}`, liveOf(t, s), "stored unchanged")
		for _, stale := range [][3]any{{"u2", int64(1), int64(5)}, {"u1", int64(2), int64(5)}, {"u1", int64(1), int64(4)}, {"u1", int64(1), int64(6)}} {
			require.Equal(t, lua.ConferenceStale, report(t, s, stale[0].(string), stale[1].(int64), stale[2].(int64), true, `{"a":2}`))
		}
		counted, err := s.StaleInfo(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"u1": 3, "u2": 1}, counted)
		require.Contains(t, liveOf(t, s), `"d"`)

		put(t, s, confRow("u1", 1, 5, 2, func(r *lua.ConferenceRow) { r.Status = berth.ConferenceAwaitingConnection }))
		require.Contains(t, liveOf(t, s), `"d"`, "the same owner")
		put(t, s, confRow("", 0, 5, 3))
		require.Equal(t, `{}`, liveOf(t, s))
		require.Equal(t, lua.ConferenceStale, report(t, s, "u1", 1, 5, true, `{"a":3}`), "no unit is the owner")
		require.Equal(t, lua.ConferenceStale, report(t, s, "", 0, 5, true, `{"a":3}`), "an empty unit id is not the owner either")
		put(t, s, confRow("u2", 1, 6, 4))
		require.Equal(t, lua.ConferenceOK, report(t, s, "u2", 1, 6, true, `{"a":4}`))
		require.Equal(t, lua.ConferenceStale, report(t, s, "u1", 1, 5, true, `{"a":5}`))
		require.Equal(t, `{"a":4}`, liveOf(t, s))
		put(t, s, confRow("u2", 1, 7, 5))
		require.Equal(t, `{}`, liveOf(t, s), "a new epoch is another owner")
	})
}

// B9: the participants of the former owner are kept when the owner changes, until those of the next one are known.
func TestPutConference_OwnerChanges_FormerParticipantsAreKept(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		put(t, s, confRow("u1", 1, 5, 1))
		report(t, s, "u1", 1, 5, true, `{"participants":[{"identity":"anna"}],"participantCount":1}`)
		put(t, s, confRow("", 0, 5, 2))
		require.JSONEq(t, `{"former":[{"identity":"anna"}]}`, liveOf(t, s))
		put(t, s, confRow("u2", 1, 6, 3))
		report(t, s, "u2", 1, 6, true, `{"participants":[],"participantCount":0}`)
		require.JSONEq(t, `{"former":[{"identity":"anna"}],"participants":[],"participantCount":0}`, liveOf(t, s))
		put(t, s, confRow("u3", 1, 7, 4))
		require.JSONEq(t, `{"former":[{"identity":"anna"}]}`, liveOf(t, s), "none had returned")
		report(t, s, "u3", 1, 7, true, `{"participants":[{"identity":"ben"}]}`)
		put(t, s, confRow("u1", 1, 8, 5))
		require.JSONEq(t, `{"former":[{"identity":"ben"},{"identity":"anna"}]}`, liveOf(t, s), "the other had no time to return")
		report(t, s, "u1", 1, 8, true, `{"participants":[{"identity":"anna","muted":true}]}`)
		put(t, s, confRow("u2", 1, 8, 6))
		require.JSONEq(t, `{"former":[{"identity":"anna","muted":true},{"identity":"ben"}]}`, liveOf(t, s), "as it was last")
		report(t, s, "u2", 1, 8, true, `{"participants":[{"identity":"anna"}]}`)
		require.NoError(t, s.Redis().HIncrBy(t.Context(), s.Keys().Conference("8613800000001"), "since", -60_000).Err())
		put(t, s, confRow("u1", 1, 8, 7))
		require.JSONEq(t, `{"former":[{"identity":"anna"}]}`, liveOf(t, s), "the other has not returned in time")
		const muted = `{"identity":"anna","tracks":[{"source":"microphone","muted":true}]}`
		report(t, s, "u1", 1, 8, true, `{"participants":[`+muted+`,{"identity":"ben"}]}`)
		put(t, s, confRow("u2", 1, 8, 7))
		report(t, s, "u2", 1, 8, true, `{"participants":[{"identity":"ben"},{"identity":"anna"}]}`)
		put(t, s, confRow("u1", 1, 8, 7))
		require.JSONEq(t, `{"former":[{"identity":"ben"},`+muted+`]}`, liveOf(t, s), "it had no time to publish its tracks")
		for _, other := range []string{`"some text"`, `{"identity":"anna"}`, `[1]`, `[{"tracks":[]}]`} {
			report(t, s, "u1", 1, 8, true, `{"participants":`+other+`}`)
			put(t, s, confRow("u1", 2, 8, 8))
			require.JSONEq(t, `{"former":`+other+`}`, liveOf(t, s))
			put(t, s, confRow("u1", 1, 8, 8))
		}
		other := func(r *lua.ConferenceRow) { r.ConferenceID = "another" }
		put(t, s, confRow("u1", 1, 9, 1, other))
		require.Equal(t, `{}`, liveOf(t, s), "another conference of the number")
	})
}

// FR1: the metadata of the room are kept when the owner changes, until the next one has reported them, however often it changes before.
func TestPutConference_OwnerChanges_RoomMetadataAreKept(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		put(t, s, confRow("u1", 1, 5, 1))
		report(t, s, "u1", 1, 5, true, `{"roomMetadata":"a"}`)
		put(t, s, confRow("", 0, 5, 2))
		require.JSONEq(t, `{"formerRoomMetadata":"a"}`, liveOf(t, s))
		put(t, s, confRow("u2", 1, 6, 3))
		report(t, s, "u2", 1, 6, true, `{"b":1}`)
		put(t, s, confRow("u3", 1, 7, 4))
		require.JSONEq(t, `{"formerRoomMetadata":"a"}`, liveOf(t, s), "u2 had not restored them")
		report(t, s, "u3", 1, 7, true, `{"roomMetadata":""}`)
		put(t, s, confRow("u1", 1, 8, 5))
		require.JSONEq(t, `{"formerRoomMetadata":""}`, liveOf(t, s), "they were cleared")
		put(t, s, confRow("u1", 1, 9, 1, func(r *lua.ConferenceRow) { r.ConferenceID = "another" }))
		require.Equal(t, `{}`, liveOf(t, s), "another conference of the number")
	})
}

// The information about one conference is bounded, whether it is sent in full or in parts.
func TestPutConferenceInfo_SizeLimit_IsEnforced(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		put(t, s, confRow("u1", 1, 5, 1))
		quarter := func(name string) string {
			b, err := json.Marshal(map[string]string{name: string(make([]byte, berth.MaxConferenceInfo/24+1))})
			require.NoError(t, err)
			return string(b)
		}
		for _, name := range []string{"a", "b", "c", "a", "b", "c"} {
			require.Equal(t, lua.ConferenceOK, report(t, s, "u1", 1, 5, false, quarter(name)), "replaced, not added")
		}
		require.Equal(t, lua.InfoTooLarge, report(t, s, "u1", 1, 5, false, quarter("d")))
		require.NotContains(t, liveOf(t, s), `"d"`)
		require.Equal(t, lua.ConferenceOK, report(t, s, "u1", 1, 5, false, `{"a":null}`))
		require.Equal(t, lua.ConferenceOK, report(t, s, "u1", 1, 5, false, quarter("d")))
		require.Equal(t, lua.ConferenceOK, report(t, s, "u1", 1, 5, true, quarter("e")))
		require.NotContains(t, liveOf(t, s), `"d"`)
		for _, bad := range []string{``, `[]`, `null`, `1`, `{`} {
			_, err := s.PutConferenceInfo(t.Context(), "8613800000001", berth.ConferenceInfo{NodeID: "u1", Generation: 1, Epoch: 5, Live: json.RawMessage(bad)})
			require.Equal(t, berth.CodeInvalid, berth.CodeOf(err), bad)
		}
		for unit, code := range map[string]string{"u1": lua.ConferenceOK, "u2": lua.ConferenceStale} {
			got, err := s.PutConferenceInfo(t.Context(), "8613800000001", berth.ConferenceInfo{NodeID: unit, Generation: 1, Epoch: 5, Ended: true})
			require.NoError(t, err)
			require.Equal(t, code, got)
		}
	})
}

// C7, L12: work that a node already runs gets a slot even if the node is full. A generation that has ended has no slots.
func TestRestoreNodeSlot_NodeFull_HoldsSlot(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		r := register(t, s, spec("u1", slots(2)))
		seize := func(lease string, generation int64, ttl time.Duration) string {
			code, err := s.RestoreNodeSlot(t.Context(), berth.Assignment{LeaseID: lease, NodeRef: berth.NodeRef{NodeID: "u1", Generation: generation}, PoolID: pair}, ttl)
			require.NoError(t, err)
			return code
		}
		first := assign(t, s, "l1", lua.Choice{Hold: 5 * time.Second})
		for _, lease := range []string{"l2", "l3", "l3"} {
			require.Equal(t, lua.NodeSlotHeld, seize(lease, r.Generation, time.Minute))
		}
		require.Equal(t, 3, node(t, s, "u1").Leases)
		require.Equal(t, lua.AssignFull, assign(t, s, "l4", lua.Choice{}).Code)
		require.Equal(t, lua.NodeSlotHeld, seize("l1", r.Generation, time.Hour), "extended")
		until, err := s.Redis().ZScore(t.Context(), s.Keys().NodeSlots("u1"), "l1").Result()
		require.NoError(t, err)
		require.Greater(t, until, float64(redisMs(t, s)+50*60_000))
		require.Equal(t, "u1", first.NodeID)
		require.True(t, release(t, s, berth.Assignment{NodeRef: berth.NodeRef{NodeID: "u1"}, LeaseID: "l2"}))
		require.True(t, release(t, s, berth.Assignment{NodeRef: berth.NodeRef{NodeID: "u1"}, LeaseID: "l3"}))
		require.Equal(t, lua.AssignOK, assign(t, s, "l4", lua.Choice{}).Code)
		require.Equal(t, lua.NodeGone, seize("l5", r.Generation+1, time.Minute))
		code, err := s.WithdrawNode(t.Context(), "u1", 0, berth.DepartureWithdrawn)
		require.NoError(t, err)
		require.Equal(t, lua.NodeOK, code)
		require.Equal(t, lua.NodeGone, seize("l5", r.Generation, time.Minute))
	})
}
