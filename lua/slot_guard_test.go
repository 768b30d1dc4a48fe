package lua_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/testredis"
	"berth/lua"
)

// L12: slots that Redis lost are not granted for one lease time.
func TestSlotGrace_RedisLostLeases_DelaysGrants(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	lost := map[string]func(ctx context.Context, s *lua.Scripts) error{
		"guard missing": func(ctx context.Context, s *lua.Scripts) error {
			return s.Redis().Del(ctx, s.Keys().Guard(), s.Keys().ModelHolders("m"), s.Keys().UpstreamHolders("m", "only")).Err()
		},
		"another server": func(ctx context.Context, s *lua.Scripts) error {
			if err := s.Redis().HSet(ctx, s.Keys().Guard(), "server", "0123").Err(); err != nil {
				return fmt.Errorf("set the server: %w", err)
			}
			return s.Redis().Del(ctx, s.Keys().ModelHolders("m"), s.Keys().UpstreamHolders("m", "only")).Err()
		},
	}
	for name, lose := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				ctx := t.Context()
				times := lua.SlotTimes{TTL: time.Hour, Grant: time.Minute} // the test ends the grace
				call := func(lease string) lua.SlotReply {
					r, err := s.AcquireSlot(ctx, lua.SlotCall{Model: "m", Limits: lua.OneUpstream(1), Lease: full(lease), Times: times})
					require.NoError(t, err)
					return r
				}
				require.Equal(t, lua.SlotGranted, call("p/a").Code)
				require.NoError(t, lose(ctx, s))
				began := redisMs(t, s)
				r := call("q/b")
				require.Equal(t, lua.SlotWaiting, r.Code, "the lost holder may still be running")
				require.InDelta(t, times.TTL.Milliseconds(), r.Next.Milliseconds(), float64(redisMs(t, s)-began+1))

				_, out, err := s.RenewSlots(ctx, times, []lua.ModelLeases{{Model: "m", Limits: lua.OneUpstream(1), Holders: heldBy(fulls([]string{"p/a"})...)}})
				require.NoError(t, err)
				require.Equal(t, []string{lua.SlotHeld}, out[0].Holders, "restored")

				_, _, err = s.ReleaseSlot(ctx, "m", lua.OneUpstream(1), times, full("p/a"))
				require.NoError(t, err)
				require.Equal(t, lua.SlotWaiting, call("q/b").Code, "there may be more lost holders")
				require.NoError(t, s.Redis().HSet(ctx, s.Keys().Guard(), "grace", redisMs(t, s)-1).Err())
				require.Equal(t, lua.SlotGranted, call("q/b").Code)

				_, out, err = s.RenewSlots(ctx, times, []lua.ModelLeases{{Model: "m", Limits: lua.OneUpstream(1), Holders: heldBy(fulls([]string{"p/a"})...)}})
				require.NoError(t, err)
				require.Equal(t, []string{lua.SlotLost}, out[0].Holders, "the grace has ended")
			})
		})
	}
}

func TestMarkNew_GuardExists_KeepsIt(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		code, err := s.MarkNew(t.Context())
		require.NoError(t, err)
		require.Equal(t, lua.GuardExists, code, "onAll has already called it")
		require.NoError(t, s.Redis().Del(t.Context(), s.Keys().Guard()).Err())
		_, _, err = s.RenewSlots(t.Context(), slotTimes, nil) // opens a grace
		require.NoError(t, err)
		code, err = s.MarkNew(t.Context())
		require.NoError(t, err)
		require.Equal(t, lua.GuardExists, code, "an open grace is not shortened")
		require.Equal(t, lua.SlotWaiting, acquire(t, s, "p/a", 1, 0).Code)
	})
}

// Orders follow the clock, so that after the loss of the counter new leases do not overtake those that return with their
// earlier order.
func TestAcquireSlot_CounterLost_OrderIncreases(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		var last int64
		for i := range 50 {
			if i == 25 {
				require.NoError(t, s.Redis().Del(t.Context(), s.Keys().ModelState("m")).Err())
			}
			order, _, _ := strings.Cut(acquire(t, s, "p/"+strconv.Itoa(i), 0, 0).Ticket, "/")
			n, err := strconv.ParseInt(order, 10, 64)
			require.NoError(t, err)
			require.Greater(t, n, last)
			last = n
		}
	})
}

// L12: a grace is identified by its end, which every call returns, during the grace and afterwards.
func TestCheckGuard_Grace_ReturnsItsEnd(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx := t.Context()
		require.NoError(t, s.Redis().Del(ctx, s.Keys().Guard()).Err())
		began := redisMs(t, s)
		first, err := s.CheckGuard(ctx)
		require.NoError(t, err)
		require.Positive(t, first.Left)
		require.LessOrEqual(t, first.Left, lua.NodeGrace)
		require.InDelta(t, began+lua.NodeGrace.Milliseconds(), first.Until.UnixMilli(), float64(redisMs(t, s)-began+1))
		again, err := s.CheckGuard(ctx)
		require.NoError(t, err)
		require.Equal(t, first.Until, again.Until)

		ended := redisMs(t, s) - 1000
		require.NoError(t, s.Redis().HSet(ctx, s.Keys().Guard(), "grace", strconv.FormatInt(ended, 10)).Err())
		past, err := s.CheckGuard(ctx)
		require.NoError(t, err)
		require.Equal(t, ended, past.Until.UnixMilli())
		require.LessOrEqual(t, past.Left, -time.Second)

		require.NoError(t, s.Redis().HSet(ctx, s.Keys().Guard(), "grace", "0").Err())
		never, err := s.CheckGuard(ctx)
		require.NoError(t, err)
		require.Zero(t, never.Until)
		require.Negative(t, never.Left)
	})
}

// L12: a master that was replaced without noticing, such as one that was frozen, executes the calls it had received before. The
// slots that it grants then belong to leases that were renewed elsewhere, so no waiter may claim them.
func TestSlotGrace_ReplacedMasterGrantedSlot_WaiterDoesNotClaim(t *testing.T) {
	t.Parallel()
	claims := map[string]func(t *testing.T, s *lua.Scripts) (code string){
		"acquire": func(t *testing.T, s *lua.Scripts) string { return acquire(t, s, "q/waiter", 1, 0).Code },
		"renew": func(t *testing.T, s *lua.Scripts) string {
			_, out, err := s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{{Model: "m", Limits: lua.OneUpstream(1), Waiters: []lua.WaitingLease{{Lease: full("q/waiter")}}}})
			require.NoError(t, err)
			return out[0].Waiters[0].Code
		},
	}
	servers := slotServers(t)
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				earlier := lua.New(s.Redis(), s.Keys()) // does not know of the other master
				require.Equal(t, lua.SlotGranted, acquire(t, earlier, "q/waiter", 1, 0).Code, "the holder's lease has expired here")
				replaced := lua.New(s.Redis(), lua.Keys{Cell: testredis.Cell(t)})
				for range 2 {
					require.NoError(t, s.Redis().Del(t.Context(), replaced.Keys().Guard()).Err())
					_, err := replaced.CheckGuard(t.Context())
					require.NoError(t, err)
				}
				s.Learn(replaced)

				require.Equal(t, lua.SlotWaiting, claim(t, s))
				_, out, err := s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{{Model: "m", Limits: lua.OneUpstream(1), Holders: heldBy(fulls([]string{"p/holder"})...)}})
				require.NoError(t, err)
				require.Equal(t, []string{lua.SlotHeld}, out[0].Holders)
				require.Equal(t, lua.SlotWaiting, claim(t, s))
			})
		})
	}
}
