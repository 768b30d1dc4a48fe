package llm

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
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

// A model with credits and without a bound of its answers gets one that its provider may refuse: a warning names it, and the refusal what the operator sets.
func TestAssumedBounds_ModelWithCredits_SettingNamed(t *testing.T) { // G16, O5
	t.Parallel()
	const says = "max_tokens is too large: 8192. This model supports at most 4096 completion tokens."
	const task = "the operator has to set maxOutputTokens of the model in the routing file"
	for name, row := range map[string]struct {
		model, request, refusal string
		warned, named           bool
	}{
		"metered":                  {"credits: {input: 1}", plainBody, says, true, true},
		"its context":              {"credits: {input: 1}", plainBody, "'max_tokens' is too large: 8192. This model's maximum context length is 4096 tokens.", true, true},
		"long texts":               {"credits: {input: 1}", plainBody, "the maximum context length is 4096 tokens; reduce the messages or max_tokens", true, false},
		"another field":            {"credits: {input: 1}", plainBody, "temperature is too high", true, false},
		"lower bound of client":    {"credits: {input: 1}", `{"max_tokens":5000,` + plainBody[1:], says, true, false},
		"higher bound of client":   {"credits: {input: 1}", `{"max_tokens":9000,` + plainBody[1:], says, true, true},
		"with a bound":             {"credits: {input: 1}, maxOutputTokens: 8192", plainBody, says, false, false},
		"without credits, sent":    {"cap: 1", `{"max_tokens":8192,` + plainBody[1:], says, false, false},
		"without credits, nothing": {"cap: 1", plainBody, says, false, false},
	} {
		content, err := ParseContent("routing.yaml", "providers: {acme: {baseURL: \"http://acme.test/v1\", keyOptional: true}}\nmodels: {chat: {provider: acme, "+row.model+"}}\n")
		require.NoError(t, err, name)
		catalog, err := NewCatalog(content.Config, Settings{})
		require.NoError(t, err, name)
		warnings := catalog.AssumedBounds()
		require.Equal(t, row.warned, len(warnings) == 1 && strings.Contains(warnings[0], "maxOutputTokens: chat: "), "%s: %s", name, warnings)
		body := fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error","param":"max_tokens"}}`, row.refusal)
		answer := fmt.Appendf(nil, "HTTP/1.1 400 X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n%s", body)
		c := NewClient(Fixed(catalog), &http.Client{Transport: &wire{next: always(answer)}}, slog.New(slog.DiscardHandler))
		_, err = c.Forward(t.Context(), Call{Model: "chat", Raw: rawOf(row.request)}, func([]byte) error { return nil })
		failed := failure(t, err)
		require.Equal(t, row.named, strings.Contains(failed.Said.Message, task), "%s: %s", name, failed.Said.Message)
		require.Equal(t, row.named, strings.Contains(failed.Message, task), name)
		require.Contains(t, failed.Said.Message, row.refusal, name)
	}
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
