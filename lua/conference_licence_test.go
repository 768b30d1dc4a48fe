package lua_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// licensed returns the numbers of the conferences that have a licence, sorted. It checks the result of Licences for 1001.
func licensed(t *testing.T, s *lua.Scripts) (numbers []string) {
	t.Helper()
	numbers = members(t, s, s.Keys().Licences())
	slices.Sort(numbers)
	used, has, err := s.Licences(t.Context(), "1001")
	require.NoError(t, err)
	require.Len(t, numbers, used)
	require.Equal(t, slices.Contains(numbers, "1001"), has)
	return numbers
}

// C22: no more conferences are active than there are licences. A licence is granted and deleted with the conference's row in
// one decision, and a late write does not restore it. L12: that of a conference that runs is restored beyond the limit.
func TestPutConference_LicenceLimit_RejectsFurtherConferences(t *testing.T) {
	t.Parallel()
	require.Equal(t, "{c1}:confex:licences", lua.Keys{Cell: "c1"}.Licences())
	requests, has, waived := lua.Licence{Limit: 2}, lua.Licence{}, lua.Licence{Waived: true}
	const ended = -1 // in place of an epoch: the conference has ended
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		for i, step := range []struct {
			number          int
			id              string
			epoch, revision int64 // epoch may be ended
			licence         lua.Licence
			code            string
			licensed        []string
		}{
			{1001, "a", 1, 1, requests, lua.ConferenceOK, []string{"1001"}},
			{1001, "a", 1, 1, requests, lua.ConferenceOK, []string{"1001"}}, // the same again
			{1002, "b", 1, 1, requests, lua.ConferenceOK, []string{"1001", "1002"}},
			{1003, "c", 1, 1, requests, lua.ConferenceNoLicence, []string{"1001", "1002"}},
			{1001, "a", 2, 2, requests, lua.ConferenceOK, []string{"1001", "1002"}}, // has a licence
			{1001, "a", 1, 1, waived, lua.ConferenceStale, []string{"1001", "1002"}},
			{1001, "a", 2, 3, waived, lua.ConferenceOK, []string{"1002"}}, // waits without a licence
			{1001, "a", 2, 3, waived, lua.ConferenceOK, []string{"1002"}},
			{1001, "a", 2, 2, has, lua.ConferenceStale, []string{"1002"}}, // late
			{1003, "c", 2, 1, requests, lua.ConferenceOK, []string{"1002", "1003"}},
			{1001, "a", 3, 4, requests, lua.ConferenceNoLicence, []string{"1002", "1003"}},
			{1001, "a", 3, 5, has, lua.ConferenceOK, []string{"1001", "1002", "1003"}}, // it runs already: no licence is requested
			{1004, "d", 1, 1, requests, lua.ConferenceNoLicence, []string{"1001", "1002", "1003"}},
			{1002, "b", ended, 1, has, lua.ConferenceOK, []string{"1001", "1003"}},
			{1002, "b", ended, 1, has, lua.ConferenceOK, []string{"1001", "1003"}},
			{1002, "b", 1, 2, has, lua.ConferenceStale, []string{"1001", "1003"}}, // late
			{1001, "a", ended, 3, has, lua.ConferenceOK, []string{"1003"}},
			{1001, "e", 4, 1, requests, lua.ConferenceOK, []string{"1001", "1003"}}, // the number is used again
			{1001, "a", ended, 3, has, lua.ConferenceStale, []string{"1001", "1003"}},
			{1004, "d", ended, 1, has, lua.ConferenceOK, []string{"1001", "1003"}},  // it never had a licence
			{1003, "f", 9, 1, requests, lua.ConferenceOK, []string{"1001", "1003"}}, // replaces a conference whose row was lost
			{1001, "e", ended, 4, has, lua.ConferenceOK, []string{"1003"}},
			{1003, "f", ended, 9, has, lua.ConferenceOK, []string{}},
		} {
			number := strconv.Itoa(step.number)
			row := lua.ConferenceRow{
				E164: number, ConferenceID: step.id, NodeID: "u1", Generation: 1, Epoch: step.epoch, Revision: step.revision,
				Status: berth.ConferenceOpen, StartedAt: time.UnixMilli(started),
			}
			before, _, err := s.ConferenceRow(t.Context(), number)
			require.NoError(t, err)
			var code string
			if step.epoch == ended {
				code, err = s.DropConference(t.Context(), number, step.id, step.revision)
			} else {
				code, err = s.PutConference(t.Context(), row, json.RawMessage(basic), step.licence)
			}
			require.NoError(t, err)
			require.Equal(t, step.code, code, i)
			require.Equal(t, step.licensed, licensed(t, s), i)
			after, ok, err := s.ConferenceRow(t.Context(), number)
			require.NoError(t, err)
			switch {
			case code != lua.ConferenceOK:
				require.Equal(t, before, after, "%d: a refusal changes nothing", i)
			case step.epoch == ended:
				require.False(t, ok, i)
			default:
				require.Equal(t, row, after, i)
			}
		}
		require.Empty(t, members(t, s, s.Keys().UnitConferences("u1")))
	})
}
