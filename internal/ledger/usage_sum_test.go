package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// G16: the sums of calls by each dimension, and their filters.
func TestUsageSums_ByEachDimension_EqualTheCalls(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		empty, more, err := l.UsageSums(ctx, UsageQuery{}, nil)
		require.NoError(t, err)
		require.Equal(t, []UsageSum{{}}, empty, "of no call")
		require.False(t, more)
		for i, of := range []struct {
			user string
			berth.Group
		}{{"alice", berth.Group{Team: "search", App: "chat"}}, {"bob", berth.Group{Team: "search"}}, {"bob", berth.Group{}}} {
			task := chain()
			task.UserID, task.Group = of.user, of.Group
			task = create(t, l, task)
			a := begin(t, l, task, 0)
			r := result(task, 0, a.Fence, "text")
			r.Usage, r.CostMicros, r.Upstream = berth.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 3, ReasoningTokens: 1}, int64(100*(i+1)), "u"
			if i == 1 {
				r.Code, r.Cause = berth.CodeProviderUnavailable, "rate_limit"
				require.NoError(t, l.FailedCall(ctx, r.ModelCall))
				begin(t, l, task, 0) // a call that runs
				continue
			}
			_, err := l.FinishStep(ctx, r)
			require.NoError(t, err)
		}
		sum := func(calls, failed, cost int64) UsageSum {
			return UsageSum{
				Calls: calls, Failed: failed, CostMicros: cost,
				Tokens: UsageTokens{Input: 10 * calls, Cached: 4 * calls, Output: 3 * calls, Reasoning: calls},
			}
		}
		with := func(u UsageSum, set func(*UsageSum)) UsageSum { set(&u); return u }
		today := time.Now().UTC().Format(time.DateOnly)
		for name, c := range map[string]struct {
			q    UsageQuery
			by   []string
			want []UsageSum
		}{
			"all": {UsageQuery{}, nil, []UsageSum{sum(3, 1, 600)}},
			"by team": {UsageQuery{}, []string{"team"}, []UsageSum{
				sum(1, 0, 300), with(sum(2, 1, 300), func(u *UsageSum) { u.TeamID = "search" }),
			}},
			"by application and user": {UsageQuery{}, []string{"app", "user"}, []UsageSum{
				with(sum(2, 1, 500), func(u *UsageSum) { u.UserID = "bob" }),
				with(sum(1, 0, 100), func(u *UsageSum) { u.AppID, u.UserID = "chat", "alice" }),
			}},
			"by what is the same": {UsageQuery{}, []string{"service", "template", "model", "upstream", "day"}, []UsageSum{
				with(sum(3, 1, 600), func(u *UsageSum) {
					u.ServiceID, u.Template, u.Model, u.Upstream, u.Day = "svc", string(chain().Template), "model-of-ocr", "u", today
				}),
			}},
			"by key":           {UsageQuery{}, []string{"key"}, []UsageSum{sum(3, 1, 600)}},
			"of a team":        {UsageQuery{TeamID: "search"}, nil, []UsageSum{sum(2, 1, 300)}},
			"of an app":        {UsageQuery{AppID: "chat"}, nil, []UsageSum{sum(1, 0, 100)}},
			"of a user":        {UsageQuery{UserID: "alice"}, nil, []UsageSum{sum(1, 0, 100)}},
			"of another model": {UsageQuery{Model: "other"}, []string{"model"}, nil},
			"of an upstream":   {UsageQuery{Upstream: "u"}, nil, []UsageSum{sum(3, 1, 600)}},
			"of another one":   {UsageQuery{Upstream: "v"}, []string{"upstream"}, nil},
			"by outcome": {UsageQuery{}, []string{"outcome"}, []UsageSum{
				with(sum(2, 0, 400), func(u *UsageSum) { u.Outcome = OutcomeSuccess }),
				with(sum(1, 1, 200), func(u *UsageSum) { u.Outcome = string(berth.CodeProviderUnavailable) }),
			}},
			"by cause": {UsageQuery{}, []string{"cause"}, []UsageSum{
				sum(2, 0, 400), with(sum(1, 1, 200), func(u *UsageSum) { u.Cause = "rate_limit" }),
			}},
			"before": {UsageQuery{To: time.Now().Add(-time.Hour)}, []string{"team"}, nil},
			"since":  {UsageQuery{From: time.Now().Add(-time.Hour)}, nil, []UsageSum{sum(3, 1, 600)}},
		} {
			got, more, err := l.UsageSums(ctx, c.q, c.by)
			require.NoError(t, err, name)
			require.False(t, more)
			if name == "by what is the same" {
				c.want[0].ServiceID, c.want[0].Model = got[0].ServiceID, got[0].Model // those of the test's chain
				require.NotEmpty(t, got[0].Model)
			}
			require.Equal(t, c.want, got, name)
		}
	})
}
