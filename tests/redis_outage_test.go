package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/workflows"
)

// A6, A10, L11: Redis hangs, or is killed and returns with its data, for longer than one attempt of any step. The nodes
// finish their jobs, one turn is ended meanwhile, and one continues afterwards: each reader receives every segment once and
// in order, and the end of the turn; no run fails, and no slot stays held.
func TestTurn_RedisOutage_SegmentsArriveOnce(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testredis.Server){
		"hanging": func(r *testredis.Server) {
			r.Pause()
			<-time.After(7 * time.Second)
			r.Resume()
		},
		"dead": func(r *testredis.Server) {
			r.Kill()
			<-time.After(9 * time.Second)
			r.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testredis.Start(t, "--appendonly", "yes")
			s := newStack(t, with("TURN_TIMEOUT_MS=60000", "BERTH_REDIS_ADDR="+redis.Addr()))
			testNodes := []*testNode{s.testNode("a", 8), s.testNode("b", 8)}
			var users []*session
			var turns []string
			for i := range 3 {
				c := s.session(fmt.Sprintf("user-%d", i), fmt.Sprintf("s%d", i))
				first := c.submit("", 0, "")
				c.await(first.TurnID, berth.EventTranslation)
				users, turns = append(users, c), append(turns, first.TurnID)
			}
			for _, d := range testNodes {
				d.held.Store(true)
			}
			jobs := 0
			for i, c := range users {
				for index := 1; index < 3; index++ {
					c.submit(turns[i], index, "")
					jobs++
				}
			}
			running := make(chan testJob, jobs)
			for range jobs {
				select {
				case j := <-testNodes[0].jobs:
					running <- j
				case j := <-testNodes[1].jobs:
					running <- j
				case <-time.After(maxWait):
					t.Fatal("a job reached no node")
				}
			}
			close(running)

			ended := make(chan error, 1)
			go func() {
				<-time.After(time.Second) // Redis is unavailable now
				for j := range running {
					j.answer <- nil
				}
				ended <- users[0].finalize(turns[0])
			}()
			away(redis)
			back := time.Now()
			require.NoError(t, <-ended)
			for _, d := range testNodes {
				d.held.Store(false)
			}
			users[1].submit(turns[1], 3, berth.FinalizeManual)
			require.NoError(t, users[2].finalize(turns[2]))
			for i, c := range users {
				want := "turn, 0:text 0, 1:text 1, 2:text 2, done(manual 0/3)"
				if i == 1 {
					want = "turn, 0:text 0, 1:text 1, 2:text 2, 3:text 3, done(manual 0/4)"
				}
				require.Equal(t, want, c.await(turns[i], berth.EventDone))
			}
			t.Logf("all was published %s after Redis was available again", time.Since(back).Round(10*time.Millisecond))
			for i, c := range users {
				for _, j := range c.turn(turns[i]).Jobs {
					require.Equal(t, 1, j.Dispatches, "no job was dispatched twice")
				}
				s.succeeds(workflows.TurnWorkflowID(turns[i]))
			}
			s.noSlotsIn(redis, "a", "b")
			keys, err := redis.Client().Keys(t.Context(), "*scheduler:turn:*").Result()
			require.NoError(t, err)
			require.Empty(t, keys, "ended turns are deleted")
		})
	}
}
