package activities

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/internal/lease"
	"berth/internal/llm"
	"berth/internal/testprovider"
	"berth/lua"
)

const cacheFields = ", price: {input: 10, cachedInput: 1, output: 20}, cap: 4, rank: 1, keySetting: KEY_0"

// G14, G16: the input that the provider had cached is in the usage of the call, and has its own price.
func TestRunStep_ProviderHasPromptCached_TokensCountedAndPriced(t *testing.T) {
	t.Parallel()
	h := newUpstreamTest(t, "job_summary", cacheFields)
	h.servers["a"].Cache(10)
	h.servers["a"].Answer(inOrder(testprovider.Write(0, "{}"), testprovider.Write(0, validJSON(t, "job_summary")))) // the second call repeats the first prompt
	_, err := h.attempt(nil)
	require.NoError(t, err)
	calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
	require.NoError(t, err)
	require.Len(t, calls, 2)
	first, second := calls[0].Usage, calls[1].Usage
	require.Zero(t, first.CachedTokens)
	require.Greater(t, second.CachedTokens, first.InputTokens*9/10, "of %d", second.InputTokens)
	for _, c := range calls {
		u := c.Usage
		require.EqualValues(t, 10*(u.InputTokens-u.CachedTokens)+u.CachedTokens+20*u.OutputTokens, c.CostMicros)
	}
}

// chats are conversations whose every prompt begins with the former one, with a model of three upstreams.
type chats struct {
	*upstreamTest
	slots     *lease.Slots
	prompts   [][]llm.Message
	preferred bool
	// input and cached are tokens, cost is in millionths of a dollar.
	input, cached, cost atomic.Int64
}

func newChats(t *testing.T, conversations int, preferred bool) *chats {
	t.Helper()
	c := &chats{upstreamTest: newUpstreamTest(t, "interview_prep", cacheFields, cacheFields, cacheFields), preferred: preferred}
	for _, s := range c.servers {
		s.Cache(2 * conversations) // of the newest calls
		s.Answer(testprovider.Write(time.Millisecond, testprovider.Text))
	}
	for n := range conversations {
		c.prompts = append(c.prompts, []llm.Message{llm.TextMessage(llm.RoleSystem, fmt.Sprintf("This is conversation %d. %s", n, strings.Repeat("It is long. ", 50)))})
	}
	c.slots = lease.New(c.Scripts, lease.Options{Limits: func(model string) lua.ModelLimits { return c.Catalog(model).Limits(model, 0) }})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = c.slots.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return c
}

// turn makes the next call of a conversation.
func (c *chats) turn(ctx context.Context, n int) error {
	c.prompts[n] = append(c.prompts[n], llm.TextMessage(llm.RoleUser, strings.Repeat("And then? ", 10)))
	name := strconv.Itoa(n)
	r := lease.Request{Model: stepModel, Queue: "q_paid_stream", UserID: name}
	if c.preferred {
		r.Conversation = name
	}
	slot, err := c.slots.Acquire(ctx, r)
	if err != nil {
		return err
	}
	defer slot.Release()
	res, err := c.Models.Stream(ctx, llm.Call{Model: stepModel, Upstream: slot.Upstream(), Messages: c.prompts[n]}, nil)
	if err != nil {
		return err
	}
	m, _ := c.Catalog(stepModel).Model(stepModel)
	u, _ := m.Upstream(slot.Upstream())
	c.input.Add(res.Usage.InputTokens)
	c.cached.Add(res.Usage.CachedTokens)
	c.cost.Add(u.CostMicros(res.Usage))
	c.prompts[n] = append(c.prompts[n], llm.TextMessage(llm.RoleAssistant, res.Text))
	return nil
}

// G14: providers find more of the prompts in their caches, and are paid less, if a conversation prefers one of them. Half of the slots are in
// use, so that most calls find one at the upstream that they prefer.
func TestUpstreams_ConversationsOfSeveralTurns_PreferenceCachesMore(t *testing.T) {
	t.Parallel()
	const conversations, turns = 24, 6
	all := map[bool]*chats{}
	for _, preferred := range []bool{false, true} {
		c := newChats(t, conversations, preferred)
		for range turns {
			var g errgroup.Group
			g.SetLimit(6)
			for n := range conversations {
				g.Go(func() error { return c.turn(t.Context(), n) })
			}
			require.NoError(t, g.Wait())
		}
		for name, s := range c.servers {
			require.Positive(t, s.Calls.Load(), name)
		}
		t.Logf("preferred: %v, %d of %d input tokens were cached (%.0f %%), for %d millionths of a dollar", preferred, c.cached.Load(), c.input.Load(),
			100*float64(c.cached.Load())/float64(c.input.Load()), c.cost.Load())
		all[preferred] = c
	}
	with, without := all[true], all[false]
	require.Equal(t, without.input.Load(), with.input.Load())
	require.Greater(t, with.cached.Load(), without.cached.Load()*11/10)
	require.Less(t, with.cost.Load(), without.cost.Load())
}
