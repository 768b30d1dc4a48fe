package llm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestServiceQueue_Tiers_HaveQueueOrDefault(t *testing.T) { // O2
	t.Parallel()
	const own = "providers: {p: {baseURL: http://127.0.0.1:1/v1}}\nmodels: {m: {provider: p, cap: 1}}\nqueues:\n  all: {}\n"
	for _, c := range []struct {
		queues, tier string
		queue        berth.Queue
		used         string
	}{
		{"", "", "all", "default"},
		{"", "auto", "all", "default"},
		{"", "default", "all", "default"},
		{"", "flex", "all", "flex"},
		{"", "priority", "all", "default"},
		{"", "scale", "all", "default"},
		{"  later: {serviceTier: flex}\n", "flex", "later", "flex"},
		{"  first: {weight: 9, serviceTier: priority}\n", "priority", "first", "priority"},
		{"  first: {weight: 9, serviceTier: priority}\n", "default", "all", "default"},
		{"  first: {weight: 9, serviceTier: priority}\n", "scale", "all", "default"},
	} {
		content, err := ParseContent("routing.yaml", own+c.queues)
		require.NoError(t, err)
		catalog, err := NewCatalog(content.Config, Settings{})
		require.NoError(t, err)
		queue, used, ok := catalog.ServiceQueue(c.tier)
		require.True(t, ok)
		require.Equal(t, c.queue, queue, c)
		require.Equal(t, c.used, used, c)
		_, _, ok = catalog.ServiceQueue("gold")
		require.False(t, ok)
	}
	for queues, problem := range map[string]string{
		"  a: {serviceTier: gold}\n":                           "serviceTier",
		"  a: {serviceTier: flex, tier: paid}\n":               "neither tier nor mode",
		"  a: {serviceTier: flex}\n  b: {serviceTier: flex}\n": "has the queue a already",
		"  a: {serviceTier: flex, mode: batch}\n":              "neither tier nor mode",
		"  a: {serviceTier: auto}\n":                           "serviceTier",
	} {
		_, err := ParseContent("routing.yaml", own+queues)
		require.ErrorContains(t, err, problem, queues)
	}
}

// What is reserved for a call is never less than what it can cost.
func TestReserveCall_Bounds_CostOfLongestAnswer(t *testing.T) { // O4
	t.Parallel()
	content, err := ParseContent("routing.yaml", `providers: {p: {baseURL: "http://127.0.0.1:1/v1"}}
models:
  m:
    credits: {input: 1000, cachedInput: 2000, output: 10000}
    upstreams: [{name: a, provider: p, cap: 1, maxOutputTokens: 1000}, {name: b, provider: p, cap: 1, maxOutputTokens: 4000}]
`)
	require.NoError(t, err)
	catalog, err := NewCatalog(content.Config, Settings{})
	require.NoError(t, err)
	for _, c := range []struct {
		raw  Raw
		want berth.Credits
	}{
		{Raw{Operation: OperationChat, InputTokens: 1000, Choices: 1}, 42 * berth.Credit},
		{Raw{Operation: OperationChat, InputTokens: 1000, Choices: 3}, 122 * berth.Credit},
		{Raw{Operation: OperationChat, InputTokens: 1000, Choices: 1, MaxTokens: 100}, 3 * berth.Credit},
		{Raw{Operation: OperationChat, InputTokens: 1000, Choices: 1, MaxTokens: 1 << 30}, 42 * berth.Credit},
		{Raw{Operation: OperationEmbeddings, InputTokens: 1000}, 2 * berth.Credit},
		{Raw{Operation: OperationChat, InputTokens: 1 << 60, Choices: 128}, berth.MaxCredits},
	} {
		require.Equal(t, c.want, catalog.ReserveCall(Call{Model: "m", Raw: &c.raw}), "%+v", c.raw)
	}
}
