package workflows

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	"pgregory.net/rapid"

	"berth"
)

// heldPlan is what happens to the slots of a workflow.
type heldPlan struct {
	slots    []heldWork
	restores []time.Duration
	outage   [2]time.Duration // in which Redis is unavailable
}

// heldWork is work that holds a slot.
type heldWork struct {
	at, takes time.Duration
	confirmed bool // it must not begin before its slot is confirmed
	lost      bool // its slot is lost when it is confirmed
}

func drawHeldPlan(t *rapid.T) (p heldPlan) {
	at := func(name string, most time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most/(100*time.Millisecond))).Draw(t, name)) * 100 * time.Millisecond
	}
	for range rapid.IntRange(1, 5).Draw(t, "slots") {
		p.slots = append(p.slots, heldWork{
			at: at("begins", 10*time.Second), takes: at("takes", time.Minute),
			confirmed: rapid.Bool().Draw(t, "confirmed"), lost: rapid.IntRange(0, 3).Draw(t, "lost") == 0,
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "restores") {
		p.restores = append(p.restores, at("restore", time.Minute))
	}
	if rapid.Bool().Draw(t, "outage") {
		begins := at("outage", time.Minute)
		p.outage = [2]time.Duration{begins, begins + at("outage takes", 5*time.Minute)}
	}
	return p
}

// L7, L12: whatever happens, no slot is confirmed after it was released, and each is released exactly once unless it has expired. Work that must
// not begin without its slot does not.
func TestHeldSlots_AnyEvents_ReleasedOnce(t *testing.T) {
	t.Parallel()
	const longest = time.Minute // of the work
	rapid.Check(t, func(t *rapid.T) {
		p := drawHeldPlan(t)
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		began := env.Now()
		away := func() error {
			if now := env.Now().Sub(began); now >= p.outage[0] && now < p.outage[1] {
				return errors.New("Redis is unavailable")
			}
			return nil
		}
		lost, released := map[string]bool{}, map[string]int{}
		var mu sync.Mutex // local activities have goroutines of their own
		var wrong []string
		check := func(ok bool, what string) {
			if !ok {
				wrong = append(wrong, what)
			}
		}
		env.RegisterActivityWithOptions(func(_ context.Context, in HeldSlots) (out ConfirmedSlots, err error) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range in.Slots {
				check(released[s.LeaseID] == 0, "confirmed after it was released: "+s.LeaseID)
				check(s.Left <= longest+holdMargin, "held for too long: "+s.LeaseID)
				out.Slots = append(out.Slots, ConfirmedSlot{Held: !lost[s.LeaseID], Generation: 1})
			}
			return out, away()
		}, activity.RegisterOptions{Name: ConfirmSlotsActivity})
		env.RegisterActivityWithOptions(func(_ context.Context, in HeldSlots) error {
			mu.Lock()
			defer mu.Unlock()
			err := away()
			for _, s := range in.Slots {
				if err == nil {
					released[s.LeaseID]++
				}
			}
			return err
		}, activity.RegisterOptions{Name: ReleaseSlotsActivity})
		run := func(ctx workflow.Context) error {
			h := heldSlots{ctx: ctx}
			work := workflow.NewWaitGroup(ctx)
			for i, w := range p.slots {
				lease := strconv.Itoa(i)
				lost[lease] = w.lost
				work.Add(1)
				workflow.Go(ctx, func(ctx workflow.Context) {
					defer work.Done()
					_ = workflow.Sleep(ctx, w.at)
					a, held := berth.Assignment{LeaseID: lease}, true
					var slot *heldSlot
					if w.confirmed {
						slot, held = h.holdConfirmed(ctx, a, longest)
						check(held != w.lost || p.outage[1] > 0, "the outcome of the confirmation of "+lease)
					} else {
						slot = h.hold(a, longest)
					}
					if held {
						_ = workflow.Sleep(ctx, w.takes)
						h.release(slot)
						h.release(slot)
					}
					check(h.free(ctx) == nil, "cancelled")
				})
			}
			for _, at := range p.restores {
				work.Add(1)
				workflow.Go(ctx, func(ctx workflow.Context) {
					defer work.Done()
					_ = workflow.Sleep(ctx, at)
					h.restore()
				})
			}
			work.Wait(ctx)
			return workflow.Await(ctx, h.idle)
		}
		env.ExecuteWorkflow(run)
		require.NoError(t, env.GetWorkflowError())
		require.Empty(t, wrong)
		for i := range p.slots {
			times := released[strconv.Itoa(i)]
			require.LessOrEqual(t, times, 1)
			require.True(t, times == 1 || p.outage[1]-p.outage[0] > holdMargin, "it was not released, and Redis was available")
		}
	})
}
