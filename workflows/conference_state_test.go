package workflows_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/workflows"
)

// C13: exactly these transitions.
func TestConferenceStatus_CanBecome_OnlyTheTransitionsOfTheTable(t *testing.T) {
	t.Parallel()
	allowed := map[berth.ConferenceStatus]string{
		"":                                 "creating",
		berth.ConferenceCreating:           "open deleted awaiting-recovery ended",
		berth.ConferenceOpen:               "awaiting-recovery awaiting-connection ended",
		berth.ConferenceAwaitingConnection: "open awaiting-recovery ended",
		berth.ConferenceAwaitingRecovery:   "creating open ended",
		berth.ConferenceEnded:              "",
		berth.ConferenceDeleted:            "",
	}
	all := append([]berth.ConferenceStatus{""}, berth.ConferenceStatuses()...)
	require.Len(t, allowed, len(all))
	for _, from := range all {
		for _, to := range all {
			may := to != "" && slices.Contains(strings.Fields(allowed[from]), string(to))
			require.Equal(t, may, from.CanBecome(to), "%s -> %s", from, to)
		}
	}
}

// C13: in each status, each event leads immediately to exactly the statuses in its row. The environment also requires every
// published transition to be a valid one.
func TestConference_EachEventInEachStatus_LeadsToTheListedStatuses(t *testing.T) {
	t.Parallel()
	const creating, recovering, open, waiting, connecting = "creating", "recovering", "open", "awaiting-recovery", "awaiting-connection"
	statuses := map[string]func(h *conferenceTest){
		creating: func(h *conferenceTest) { h.slow(berth.ActivityCreateConference, 4*time.Second) },
		recovering: func(h *conferenceTest) {
			h.slow(berth.ActivityRecoverConference, 4*time.Second)
			h.at(time.Second, func() { h.dies("u1"); h.units = append(h.units, &fakeUnit{id: "u1", generation: 2}) })
		},
		open:    func(*conferenceTest) {},
		waiting: func(h *conferenceTest) { h.at(time.Second, func() { h.dies("u1") }); h.unit("u2").capacity = 0 },
		connecting: func(h *conferenceTest) {
			h.at(time.Second, func() { h.env.SignalWorkflow(workflows.SignalRestore, nil) })
		},
	}
	moved := "awaiting-recovery creating open" // to u2, which acknowledges immediately
	events := map[string]struct {
		tell func(h *conferenceTest)
		next map[string]string // the statuses that follow, by the status before; none by default
	}{
		"its unit is dead": {
			func(h *conferenceTest) { h.gone(berth.DepartureUnresponsive) },
			map[string]string{creating: moved, recovering: "awaiting-recovery creating", open: moved, connecting: moved},
		},
		"another unit is dead": {
			func(h *conferenceTest) {
				h.notify(workflows.UnitNotice{NodeID: "u9", Generation: 1, Gone: berth.DepartureUnresponsive})
			}, nil,
		},
		"an older generation of its unit is dead": {
			func(h *conferenceTest) {
				h.notify(workflows.UnitNotice{NodeID: h.owner().NodeID, Generation: h.owner().Generation - 1, Gone: berth.DepartureUnresponsive})
			}, nil,
		},
		"its unit is drained": {
			func(h *conferenceTest) { h.gone(berth.DepartureDrained) }, nil, // it moves while it is open
		},
		"on its unit's list": {
			func(h *conferenceTest) {
				h.lists(h.owner().NodeID, h.owner().Generation, h.conference().Epoch, h.conference().CopyStartedAt)
			},
			map[string]string{connecting: "open"},
		},
		"an earlier copy is listed": { // C7
			func(h *conferenceTest) { h.lists("u2", 1, -1, h.env.Now().Add(-time.Hour)) },
			map[string]string{creating: "open", waiting: "open", connecting: "open"},
		},
		"a later copy is listed": { // it is the only one while the conference awaits recovery
			func(h *conferenceTest) { h.lists("u2", 1, -2, h.env.Now().Add(time.Hour)) },
			map[string]string{waiting: "open"},
		},
		"another conference's copy is listed": {
			func(h *conferenceTest) {
				h.notify(workflows.UnitNotice{NodeID: "u2", Generation: 1, Copy: &berth.UnitCopy{E164: number, ConferenceID: "c0", Epoch: 1}})
			}, nil,
		},
		"gone from the list of the same incarnation": {
			func(h *conferenceTest) { h.missing(1, 0) },
			map[string]string{creating: "ended", recovering: "ended", open: "ended", connecting: "ended"},
		},
		"gone from the list of another incarnation": {
			func(h *conferenceTest) { h.missing(2, 0) },
			map[string]string{creating: moved, recovering: "awaiting-recovery creating", open: moved, connecting: moved},
		},
		"gone, an earlier epoch of it": {func(h *conferenceTest) { h.missing(1, -7) }, nil},
		"capacity is signalled": {
			func(h *conferenceTest) {
				h.unit("u2").capacity = 10
				h.env.SignalWorkflow(workflows.SignalCapacity, nil)
			},
			map[string]string{waiting: "creating open"},
		},
		"capacity is signalled without any": {func(h *conferenceTest) { h.env.SignalWorkflow(workflows.SignalCapacity, nil) }, nil},
		"Redis lost the row": {
			func(h *conferenceTest) { h.env.SignalWorkflow(workflows.SignalRestore, nil) },
			map[string]string{open: "awaiting-connection"},
		},
		"an administrator ends it": {
			func(h *conferenceTest) { h.release() },
			map[string]string{creating: "ended", recovering: "ended", open: "ended", waiting: "ended", connecting: "ended"},
		},
	}
	for status, prepare := range statuses {
		for name, what := range events {
			h := newConferenceTest(t, "u1", "u2")
			prepare(h)
			before := 0
			h.at(2*time.Second, func() {
				require.Equal(t, berth.ConferenceStatus(strings.Replace(status, recovering, creating, 1)), h.conference().Status, name)
				before = len(h.statuses)
				what.tell(h)
			})
			next := -1
			h.at(3*time.Second, func() { next = len(h.statuses) })
			is := h.run()
			require.Equal(t, is.Status, h.statuses[len(h.statuses)-1])
			require.Equal(t, 1, count(h.statuses, berth.ConferenceEnded), "one end")
			if next < 0 { // it has ended before
				next = len(h.statuses)
			}
			var followed []string
			for _, s := range h.statuses[before:next] {
				followed = append(followed, string(s))
			}
			require.Equal(t, what.next[status], strings.Join(followed, " "), "%s: %s", status, name)
		}
		h := newConferenceTest(t, "u1", "u2")
		prepare(h)
		is := h.run(func(in *workflows.ConferenceInput) { in.Spec.EndAt = h.env.Now().Add(2500 * time.Millisecond) })
		require.Equal(t, berth.ConferenceEnded, is.Status, "%s: its end time comes", status)
		require.Equal(t, 1, count(h.statuses, berth.ConferenceEnded), status)
	}
}

// owner returns the owner, or u1 if there is none.
func (h *conferenceTest) owner() berth.ConferenceOwner {
	if o := h.conference().Owner; o.NodeID != "" {
		return o
	}
	return berth.ConferenceOwner{NodeID: "u1", Generation: 1}
}

// gone notifies the conference that the owner's generation, or its drain, has ended.
func (h *conferenceTest) gone(why berth.Departure) {
	h.notify(workflows.UnitNotice{NodeID: h.owner().NodeID, Generation: h.owner().Generation, Gone: why})
}

// missing notifies the conference that a run of the owner's process does not have it, or not under an epoch.
func (h *conferenceTest) missing(run, epoch int64) {
	h.notify(workflows.UnitNotice{
		NodeID: h.owner().NodeID, Generation: h.owner().Generation, Incarnation: incarnation(h.owner().NodeID, run), Missing: true, Epoch: epoch,
	})
}

func count(list []berth.ConferenceStatus, s berth.ConferenceStatus) (n int) {
	for _, have := range list {
		if have == s {
			n++
		}
	}
	return n
}

// C13, C17, L7: for any sequence of events, the conference makes only valid transitions, ends once and releases every slot, and
// every copy that was created is released unless its unit is gone.
func TestConference_RandomEvents_EndOnceAndReleaseEverything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		h := newConferenceTest(t, "u1", "u2", "u3")
		dead := map[string]bool{} // generations
		die := func(id string) {
			if u := h.unit(id); u != nil {
				dead[berth.NodeTaskQueue(id, u.generation)] = true
				h.dies(id)
			}
		}
		at := time.Second
		for range rapid.IntRange(0, 12).Draw(r, "steps") {
			at += time.Duration(rapid.IntRange(1, 400_000).Draw(r, "pause")) * time.Millisecond
			id := rapid.SampledFrom([]string{"u1", "u2", "u3"}).Draw(r, "unit")
			epoch := int64(rapid.IntRange(1, 6).Draw(r, "epoch"))
			what := rapid.SampledFrom([]string{"dies", "returns", "lists", "missing", "refuses", "silent", "answers", "full", "room", "restore"}).Draw(r, "what")
			h.at(at, func() {
				u := h.unit(id)
				switch {
				case what == "restore":
					h.env.SignalWorkflow(workflows.SignalRestore, nil)
				case what == "returns" && u == nil:
					h.units = append(h.units, &fakeUnit{id: id, generation: 100 + epoch, capacity: 10})
				case u == nil:
				case what == "dies":
					die(id)
				case what == "lists":
					for _, c := range h.commands {
						if c.in.Epoch == epoch && strings.HasPrefix(c.queue, "node."+id+".") && c.command != berth.ActivityReleaseConference {
							h.lists(id, u.generation, epoch, c.in.StartedAt)
							return
						}
					}
				case what == "missing":
					h.notify(workflows.UnitNotice{
						NodeID: id, Generation: u.generation, Incarnation: incarnation(id, epoch%2), Missing: true, Epoch: epoch,
					})
				case what == "full":
					u.capacity = 0
				case what == "room":
					u.capacity = 10
					h.env.SignalWorkflow(workflows.SignalCapacity, nil)
				default:
					u.reply = map[string]func(string) error{"refuses": refuseExceptReleases, "silent": noReplyExceptReleases, "answers": nil}[what]
				}
			})
		}
		is := h.run()
		if is.End == berth.EndByUnit {
			return // reported by units whose copies ran, so they were not released
		}
		released := map[string]bool{}
		for _, w := range h.withdrawn() {
			released[w] = true
		}
		for _, c := range h.commands {
			if c.command == berth.ActivityReleaseConference {
				released[fmt.Sprintf("%s %d", strings.TrimPrefix(c.queue, "node."), c.in.Epoch)] = true
			}
		}
		for _, o := range is.Orders {
			ref := fmt.Sprintf("%s.%d %d", o.NodeID, o.Generation, o.Epoch)
			begun := o.Command != berth.ActivityReleaseConference && !strings.HasPrefix(o.Outcome, "refused")
			if begun && !released[ref] && !dead[berth.NodeTaskQueue(o.NodeID, o.Generation)] {
				// The process has registered again and received the release, or the copy was lost with the process.
				u := h.unit(o.NodeID)
				require.True(t, u == nil || u.generation != o.Generation || lostCopy(is, o.Epoch), "%s of %s was not released", o.Command, ref)
			}
		}
	})
}

func lostCopy(is berth.Conference, epoch int64) bool {
	return slices.ContainsFunc(is.Segments, func(s berth.ConferenceSegment) bool {
		return s.Epoch == epoch && s.Reason == berth.EndUnitLost
	})
}

// refuseExceptReleases and noReplyExceptReleases acknowledge releases only.
func refuseExceptReleases(command string) error {
	if command == berth.ActivityReleaseConference {
		return nil
	}
	return nack(command)
}

func noReplyExceptReleases(command string) error {
	if command == berth.ActivityReleaseConference {
		return nil
	}
	return noReply(command)
}
