package llm

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/template"
)

func TestCreditPrices_Usage_RoundedUpToAThousandth(t *testing.T) { // G16
	t.Parallel()
	cheap, free := 100*berth.Credit, berth.Credits(0)
	for name, row := range map[string]struct {
		prices CreditPrices
		used   berth.Usage
		want   berth.Credits
	}{
		"nothing used":             {CreditPrices{Input: 500, Output: 2000}, berth.Usage{}, 0},
		"no prices":                {CreditPrices{}, berth.Usage{InputTokens: 1e9, OutputTokens: 1e9}, 0},
		"exact":                    {CreditPrices{Input: 500, Output: 2000}, berth.Usage{InputTokens: 1e6, OutputTokens: 5e5}, 1500},
		"rounded up once":          {CreditPrices{Input: 500, Output: 2000}, berth.Usage{InputTokens: 1, OutputTokens: 1}, 1},
		"cached":                   {CreditPrices{Input: berth.Credit * 1000, CachedInput: &cheap}, berth.Usage{InputTokens: 1000, CachedTokens: 400}, 600 + 40},
		"cached as input":          {CreditPrices{Input: berth.Credit}, berth.Usage{InputTokens: 1e6, CachedTokens: 1e6}, 1000},
		"cached for nothing":       {CreditPrices{Input: berth.Credit, CachedInput: &free}, berth.Usage{InputTokens: 1e6, CachedTokens: 1e6}, 0},
		"more cached than input":   {CreditPrices{Input: berth.Credit, CachedInput: &free}, berth.Usage{InputTokens: 10, CachedTokens: 20}, 0},
		"reported as negative":     {CreditPrices{Input: berth.Credit, Output: berth.Credit}, berth.Usage{InputTokens: -5, OutputTokens: -5}, 0},
		"reported as the maximum":  {CreditPrices{Input: 1e9, Output: 1e9}, berth.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, berth.MaxCredits},
		"less than nothing cached": {CreditPrices{Input: berth.Credit, CachedInput: &free}, berth.Usage{InputTokens: 1e6, CachedTokens: -1e6}, 1000},
	} {
		require.Equal(t, row.want, row.prices.Of(row.used), name)
	}
}

const meteredTemplate = `---
title: Reply
credits: metered
model: small
maxOutputTokens: 1000
mode: stream
variables: [{name: mail, required: true}]
---
{{mail}}
`

func TestReserve_MeteredTemplate_CoversAnyAnswer(t *testing.T) { // G16
	t.Parallel()
	cfg, err := parseConfig("routing.yaml", []byte(`
providers: {p: {baseURL: http://127.0.0.1:9/v1}}
models:
  small: {provider: p, maxOutputTokens: 500, credits: {input: 1000, cachedInput: 100, output: 2000.5}}
routes: {default: {paid: small, free: small}}
`))
	require.NoError(t, err)
	catalog, err := NewCatalog(cfg, Settings{})
	require.NoError(t, err)
	tmpl, err := template.Load("reply", map[string]string{"reply.prompt": meteredTemplate})
	require.NoError(t, err)
	require.True(t, tmpl.Price.Metered)
	require.Equal(t, template.Price{Metered: true}, catalog.Price(tmpl, berth.TierPaid))
	require.Zero(t, catalog.Price(tmpl, berth.TierFree))
	steps, err := catalog.Plan(tmpl, berth.TierPaid, map[string]berth.VariableKind{"mail": berth.KindText})
	require.NoError(t, err)
	small, _ := catalog.Model("small")
	short := catalog.Reserve(tmpl, steps, map[string]string{"mail": "hello"})
	long := catalog.Reserve(tmpl, steps, map[string]string{"mail": strings.Repeat("hello ", 10_000), "other": strings.Repeat("not read ", 100_000)})
	require.Equal(t, small.Credits.Of(berth.Usage{InputTokens: promptTokens + 2, OutputTokens: 500}), short)
	require.Equal(t, small.Credits.Of(berth.Usage{InputTokens: promptTokens + 18_000, OutputTokens: 500}), long)
}

func TestParseConfig_Credits_MistakeNamed(t *testing.T) { // G16
	t.Parallel()
	for text, want := range map[string]string{
		"{input: 0.0001}":      "models.small.credits.input",
		"{input: -1}":          "models.small.credits.input",
		"{output: much}":       "models.small.credits.output",
		"{in: 1}":              "models.small.credits.in",
		"{cachedInput: 1e300}": "models.small.credits.cachedInput",
		"metered":              "models.small.credits",
	} {
		_, err := parseConfig("routing.yaml", []byte("providers: {p: {baseURL: http://127.0.0.1:9/v1}}\nmodels: {small: {provider: p, credits: "+text+"}}\n"))
		require.ErrorContains(t, err, want+" (line", text)
	}
	for text, want := range map[string]string{"0.0001": "routes.reply.credits", "use": "routes.reply.credits", "-1": "routes.reply.credits"} {
		_, err := parseConfig("routing.yaml", []byte("providers: {p: {baseURL: http://127.0.0.1:9/v1}}\nmodels: {small: {provider: p}}\nroutes: {reply: {credits: "+text+"}}\n"))
		require.ErrorContains(t, err, want+" (line 3): "+template.NoPrice, text)
	}
}
