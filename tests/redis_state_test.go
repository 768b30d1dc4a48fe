package tests

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/lua"
	"berth/workflows"
)

// L12, P5: each kind of state that Redis has returns from its owner after a loss of data. A new kind of lua.States needs a condition here.
func TestRedis_LosesData_EachKindOfStateReturns(t *testing.T) {
	t.Parallel()
	s := oneSlot(t, with("TURN_TIMEOUT_MS=3600000", "BERTH_JOB_TIMEOUT=1h")) // nothing ends while a machine is busy
	calls, rdb, keys := s.logCalls(), s.redis(), lua.Keys{}
	scripts := lua.New(rdb, keys)
	ctx, operator, nodes := t.Context(), s.user("op", "operator"), s.token("nodes", "node")
	exists := func(of ...string) bool { return rdb.Exists(ctx, of...).Val() == int64(len(of)) }
	// holds reports whether a sorted set has a member that begins with a text.
	holds := func(key, member string) bool {
		members, err := rdb.ZRange(ctx, key, 0, -1).Result()
		return err == nil && slices.ContainsFunc(members, func(m string) bool { return strings.HasPrefix(m, member) })
	}

	n1 := s.engine("n1", 2, false)
	translator := s.testNode("t1", 100)
	u1 := s.media("u1", 2)
	s.afterGrace(scripts)
	_, err := operator.PutPool(ctx, berth.Pool{ID: "painters", Kind: berth.NodeEngine, Capabilities: []string{"paint"}})
	require.NoError(t, err)
	_, err = operator.PatchModel(ctx, "deepseek-chat", map[string]any{"rpm": 1000})
	require.NoError(t, err)
	_, err = operator.PutTeam(ctx, client.Team{TeamID: "painters", LevelSpec: client.LevelSpec{Weight: 2}})
	require.NoError(t, err)
	lasts := func(in *workflows.ExecutionInput) { in.Timeout, in.Deadline = time.Hour, time.Hour }
	m := s.conferences()
	conference := m.open("8690000001").Conference
	u1.setParticipants(conference, 2)
	_, err = submit(t, s.temporal(), "long", "wait", lasts)
	require.NoError(t, err)
	<-n1.started
	lease := map[string]any{"leaseId": "mine", "poolId": "wait", "holdMs": 600_000}
	status, held := s.send(http.MethodPost, "/v1/assignments", nodes, lease)
	require.Equal(t, http.StatusOK, status, "%v", held)
	_, err = submit(t, s.temporal(), "second", "wait", lasts)
	require.NoError(t, err)
	translator.held.Store(true)
	session := s.session("alice", "s1")
	turn := session.submit("", 0, "")
	job := translator.next(s)
	running, err := s.user("alice").Submit(ctx, client.Submission{
		ServiceID: "career", Template: "interview_prep", Locale: berth.LocaleEN,
		Variables: map[string]any{"resume": "Six years of Go.", "jobText": "We look for a Go developer."},
	}, "")
	require.NoError(t, err)
	s.eventually("its call", func() bool { return exists(keys.ModelHolders("deepseek-chat")) })
	submitNumbered(t, s.user("alice"), 0, moreThanAhead)
	caller := s.newKeyHolder(t, "callers", "durable")
	calling, hangUp := context.WithCancel(ctx)
	defer hangUp()
	caller.readers.Go(func() { _, _, _ = caller.sent(calling, s.httpAddr, chatBody("deepseek-chat", true)) })
	waiting := s.inWorkflows()
	require.Positive(t, waiting)

	second := lua.NodeWaiter{UserID: "alice", WorkflowID: "execution:alice:second", LeaseID: "execution:alice:second:1"}
	segment, lost := 0, false
	// missing are the kinds that Redis does not have. Each condition is met before the loss, and again after it.
	conditions := map[string]func(missing map[string]bool) bool{
		"settings of operators": func(map[string]bool) bool {
			stored, err := scripts.StoredSettings(ctx, nil, []string{"deepseek-chat"})
			return err == nil && stored.Pools["painters"] && stored.Models["deepseek-chat"] && stored.Levels[lua.Level{Team: "painters"}].Weight == 2
		},
		lua.StateConferences: func(map[string]bool) bool {
			row, ok, err := scripts.ConferenceRow(ctx, conference.E164)
			_, licensed, licenceErr := scripts.Licences(ctx, conference.E164)
			return err == nil && licenceErr == nil && ok && licensed && row.ConferenceID == conference.ID && row.NodeID == "u1"
		},
		lua.StateHeld: func(map[string]bool) bool {
			return holds(keys.NodeSlots("n1"), "execution:alice:long:1") && holds(keys.NodeSlots("t1"), turn.JobID+":") &&
				holds(keys.NodeSlots("u1"), "conference:") && holds(keys.PoolWaiting("wait"), second.ID())
		},
		lua.StateTasks: func(map[string]bool) bool { return s.inWorkflows() >= waiting-2 },
		"affinities of turns": func(missing map[string]bool) bool {
			if exists(keys.Turn(turn.TurnID)) {
				return true
			}
			if missing["assignments of clients"] {
				return false // that is the more urgent call: its slot may be another's after the grace
			}
			_, err := session.trySubmit(turn.TurnID, segment+1, "")
			if err == nil {
				segment++
			}
			return false
		},
		"nodes, with their pools": func(map[string]bool) bool {
			known, err := scripts.ReadNodes(ctx, "n1", "t1", "u1")
			return err == nil && len(known) == 3 && exists(keys.PoolMembers("wait"), keys.PoolMembers(s.pair()))
		},
		"calls of models": func(map[string]bool) bool {
			return exists(keys.ModelHolders("deepseek-chat"), keys.UserSlots("alice"))
		},
		"configured limits of models":         func(map[string]bool) bool { return rdb.HExists(ctx, keys.ModelLimits("deepseek-chat"), "base").Val() },
		"polled queues and running processes": func(map[string]bool) bool { return exists(keys.Pollers(), keys.Sweep()) },
		"streams of tasks": func(missing map[string]bool) bool {
			if lost && !missing["calls of models"] && !missing[lua.StateTasks] && !missing["clients that wait for calls"] {
				select {
				case <-calls.release:
				default:
					close(calls.release) // the answer is the writer's next append
				}
			}
			return exists(keys.StreamMeta("alice", "career", running.TaskID))
		},
		"streams of sessions, conferences and operators": func(missing map[string]bool) bool {
			if lost && !missing[lua.StateHeld] && job.answer != nil {
				job.answer <- nil // its translation is the next event
				job.answer = nil
			}
			return exists(keys.StreamMeta("alice", lua.SessionService, session.id))
		},
		"pools of sessions": func(map[string]bool) bool {
			_, err := session.PutSession(ctx, session.id, client.SessionSpec{SrcLang: "en", TgtLang: s.language})
			return err == nil && exists(keys.Session("alice", session.id))
		},
		"assignments of clients": func(map[string]bool) bool {
			s.send(http.MethodPut, "/v1/assignments/mine", nodes, held) // the next one follows
			return holds(keys.NodeSlots("n1"), "lease:nodes:mine")
		},
		"live information of conferences": func(map[string]bool) bool {
			_, live, ok, err := scripts.ConferenceInfo(ctx, conference.E164)
			return err == nil && ok && strings.Contains(string(live), `"participantCount":2`)
		},
		"clients that wait for calls": func(map[string]bool) bool {
			return exists(keys.RunningProcesses()) && rdb.ZCard(ctx, keys.AttendedCalls()).Val() == 1
		},
		"guard": func(map[string]bool) bool { return exists(keys.Guard()) },
	}
	all := func() map[string]bool {
		names := map[string]bool{}
		for _, state := range lua.States() {
			if state.Owner != lua.OwnerNone {
				require.Contains(t, conditions, state.Name, "the %s owns it", state.Owner)
				names[state.Name] = true
			}
		}
		require.Len(t, names, len(conditions), "a condition has no kind of state")
		return names
	}
	// await waits until Redis has every kind: each condition is met once, at any time, because owners restore theirs in different moments.
	await := func() {
		missing, began := all(), time.Now()
		s.eventually("the state in Redis", func() bool {
			for _, state := range lua.States() {
				if missing[state.Name] && conditions[state.Name](missing) {
					delete(missing, state.Name)
					t.Logf("%s: %s, after %s", state.Name, state.Owner, time.Since(began).Round(time.Millisecond))
				}
			}
			if len(missing) > 0 && time.Since(began) > maxWait-5*time.Second {
				require.Empty(t, missing, "did not return")
			}
			return len(missing) == 0
		})
	}
	await()
	requireStates(ctx, t, rdb, keys)
	lost = true
	require.NoError(t, rdb.FlushAll(ctx).Err())
	n1.register() // as at its next heartbeat
	await()
	require.Equal(t, berth.EventDone, watch(t, s.user("alice"), running.TaskID, nil).last.Type)
	requireStates(ctx, t, rdb, keys)
}

// requireStates requires that every key of Redis belongs to a kind of lua.States.
func requireStates(ctx context.Context, t *testing.T, rdb *redis.Client, keys lua.Keys) {
	t.Helper()
	var unknown []string
	found := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for found.Next(ctx) {
		if len(keys.StatesOf(found.Val())) == 0 {
			unknown = append(unknown, found.Val())
		}
	}
	require.NoError(t, found.Err())
	require.Empty(t, unknown, "keys of no kind of lua.States")
}
