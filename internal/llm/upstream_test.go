package llm

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/template"
)

// routingOf returns the file of two providers, with the given models and routes.
func routingOf(models string) []byte {
	return []byte("providers:\n  acme: {baseURL: \"http://acme/v1\", keySetting: ACME_KEY}\n" +
		"  zeta: {baseURL: \"http://zeta/v1\", cap: 9}\nmodels:\n" + models)
}

// G12: each mistake in upstreams and aliases has its path and line. The models begin in line 5.
func TestLoadConfig_Upstreams_MistakeNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ models, want string }{
		"name with an escape":    {"  \"m\\e[31m\": {provider: acme}", "own.yaml: models.m\uFFFD[31m (line 5): must be the name of a model"},
		"no provider":            {"  m: {upstreams: [{id: x}]}", "own.yaml: models.m.upstreams.0 (line 5): missing property 'provider'"},
		"no provider, one":       {"  m: {cap: 5}", "own.yaml: models.m (line 5): missing property 'provider'"},
		"unknown provider":       {"  m:\n    upstreams:\n      - {provider: acme}\n      - {provider: other}", `own.yaml: models.m.upstreams.1.provider (line 8): no provider "other" under providers`},
		"two of a name":          {"  m:\n    upstreams:\n      - {provider: acme}\n      - {provider: acme, keySetting: SECOND}", "own.yaml: models.m.upstreams.1 (line 8): the model has another upstream acme: give this one a name of its own"},
		"name of another":        {"  m:\n    upstreams:\n      - {provider: acme}\n      - {provider: zeta, name: acme}", "models.m.upstreams.1 (line 8): the model has another upstream acme"},
		"empty list":             {"  m: {provider: acme, upstreams: []}", "own.yaml: models.m.upstreams (line 5): minItems: got 0, want 1"},
		"unreadable name":        {"  m: {upstreams: [{provider: acme, name: \"a b\"}]}", "models.m.upstreams.0.name (line 5): "},
		"name of a model":        {"  m: {provider: acme, name: a}", "models.m.name (line 5): unknown field"},
		"unknown field":          {"  m:\n    upstreams:\n      - provider: acme\n        weight: 2", "models.m.upstreams.0.weight (line 8): unknown field"},
		"cap is a text":          {"  m: {upstreams: [{provider: acme, cap: some}]}", "models.m.upstreams.0.cap (line 5): must be a number of concurrent calls, at most 10000, or auto"},
		"cap of 0":               {"  m: {provider: acme, cap: 0}", "models.m.cap (line 5): must be a number of concurrent calls"},
		"cap of a provider":      {"  m: {provider: acme}\nroutes: {}\nqueues: {q: {weight: auto}}", "queues.q.weight (line 7)"},
		"min without auto":       {"  m: {upstreams: [{provider: acme, cap: 5, min: 2}]}", "models.m.upstreams.0.min (line 5): only a cap that is auto has bounds"},
		"max without cap":        {"  m: {provider: acme, max: 2}", "models.m.max (line 5): only a cap that is auto has bounds"},
		"min, and auto nowhere":  {"  m:\n    min: 2\n    upstreams:\n      - {provider: acme}", "models.m.min (line 6): only a cap that is auto has bounds"},
		"min above max":          {"  m: {provider: acme, cap: auto, min: 3, max: 2}", "models.m.min (line 5): must be at most max, 2"},
		"min above that of all":  {"  m:\n    max: 2\n    upstreams:\n      - {provider: acme, cap: auto, min: 3}", "models.m.upstreams.0.min (line 8): must be at most max, 2"},
		"rank of 0":              {"  m: {provider: acme, rank: 0}", "models.m.rank (line 5): "},
		"answer without room":    {"  m:\n    maxOutputTokens: 1000\n    upstreams:\n      - {provider: acme, contextTokens: 1000}", "models.m.upstreams.0.contextTokens (line 8): must be more than maxOutputTokens, 1000"},
		"timeout of an upstream": {"  m: {upstreams: [{provider: acme, timeouts: {idle: 2h}}]}", "models.m.upstreams.0.timeouts.idle (line 5): must be more than 0 and at most 1h0m0s"},
		"key, not its setting":   {"  m: {upstreams: [{provider: acme, keySetting: sk-abc}]}", "models.m.upstreams.0.keySetting (line 5): must be the name of a setting in capitals"},
		"extra is a text":        {"  m: {provider: acme, extra: top_k}", "models.m.extra (line 5): got string, want array"},
		"alias of a model":       {"  m: {provider: acme, aliases: [n]}\n  n: {provider: acme}", "own.yaml: models.m.aliases.0 (line 5): n is the name of a model"},
		"its own name":           {"  m: {provider: acme, aliases: [m]}", "models.m.aliases.0 (line 5): m is the name of a model"},
		"alias twice":            {"  m: {provider: acme, aliases: [x]}\n  n: {provider: acme, aliases: [y, x]}", "models.n.aliases.1 (line 6): x is an alias of m already"},
		"alias with a space":     {"  m: {provider: acme, aliases: [a b]}", "models.m.aliases.0 (line 5): must be a name: letters, digits"},
		"route to nothing":       {"  m: {provider: acme, aliases: [x]}\nroutes: {default: {paid: x, free: y}}", `routes.default.free (line 6): no model "y" under models`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseConfig("own.yaml", routingOf(row.models))
			require.ErrorContains(t, err, row.want)
			require.Equal(t, 1, strings.Count(err.Error(), "own.yaml"), "one mistake: %v", err)
		})
	}
}

func ownCatalog(t *testing.T, models string, s Settings) *Catalog {
	t.Helper()
	cfg, err := parseConfig("own.yaml", routingOf(models))
	require.NoError(t, err)
	c, err := NewCatalog(cfg, s)
	require.NoError(t, err)
	return c
}

// G12: the values of a model are the defaults of its upstreams, and a model without upstreams has one.
func TestModels_Upstreams_HaveValuesOfTheModel(t *testing.T) {
	t.Parallel()
	c := ownCatalog(t, `
  plain: {provider: acme, id: plain-1, cap: 7, rpm: 60}
  large:
    aliases: [gpt-5, openai/gpt-5]
    id: large-1
    min: 2
    maxOutputTokens: 100
    timeouts: {firstByte: 5s}
    price: {input: 1, output: 2}
    extra: [top_k]
    upstreams:
      - {provider: zeta, rank: 2, cap: 4, id: own, extra: []}
      - {provider: acme, cap: auto, tpm: 1000, contextTokens: 5000}
      - {provider: acme, name: second, keySetting: SECOND_KEY, cap: auto, min: 70, rpm: 5, price: {}, timeouts: {idle: 7s}, maxOutputTokens: 9}
`, Settings{})
	minute := Timeouts{FirstByte: time.Minute, Idle: time.Minute, Whole: 10 * time.Minute}
	bare := func(u Upstream) Upstream { u.config, u.Account = UpstreamConfig{}, ""; return u }
	plain, ok := c.Model("plain")
	require.True(t, ok)
	require.Len(t, plain.Upstreams, 1)
	require.Equal(t, Upstream{
		Name: "acme", Provider: "acme", ID: "plain-1", Rank: 1, Cap: 7, RPM: 60, MaxOutputTokens: DefaultMaxOutputTokens, Unbounded: true, Timeouts: minute,
	}, bare(plain.Upstreams[0]))
	require.Equal(t, []int{7, 60, 0}, []int{plain.Cap, plain.RPM, plain.TPM})

	large, ok := c.Model("gpt-5")
	require.True(t, ok)
	require.Equal(t, "large", large.Name, "an alias is resolved")
	require.Equal(t, []string{"acme", "zeta"}, large.Providers())
	got := make([]Upstream, len(large.Upstreams))
	for i, u := range large.Upstreams {
		got[i] = bare(u)
	}
	price, short := Price{Input: 1, Output: 2}, Timeouts{FirstByte: 5 * time.Second, Idle: time.Minute, Whole: 10 * time.Minute}
	require.Equal(t, []Upstream{
		{Name: "acme", Provider: "acme", ID: "large-1", Rank: 1, Cap: 64, Min: 2, Auto: true, TPM: 1000, ContextTokens: 5000, MaxOutputTokens: 100, Timeouts: short, Price: price, Extra: []string{"top_k"}},
		{Name: "second", Provider: "acme", ID: "large-1", Rank: 1, Cap: 70, Min: 70, Auto: true, RPM: 5, MaxOutputTokens: 9, Timeouts: Timeouts{FirstByte: 5 * time.Second, Idle: 7 * time.Second, Whole: 10 * time.Minute}, Extra: []string{"top_k"}},
		{Name: "zeta", Provider: "zeta", ID: "own", Rank: 2, Cap: 4, ProviderCap: 9, MaxOutputTokens: 100, Timeouts: short, Price: price, Extra: []string{}},
	}, got, "by rank, then as written")
	require.Equal(t, []int{138, 0, 0}, []int{large.Cap, large.RPM, large.TPM}, "no limit of one is none of all")
	require.Empty(t, c.KeySetting("large"), "zeta needs no key")
	require.Equal(t, "ACME_KEY", c.KeySetting("plain"))
}

// G12: the plan has the name of the model, whatever the route or the template calls it.
func TestPlan_Alias_ModelNamed(t *testing.T) {
	t.Parallel()
	one, err := template.Load("triage", map[string]string{
		"template.yaml": "title: T\nsteps:\n  - {id: read, into: text, models: gpt-5}\n  - {id: facts}\n", "read.prompt": "a", "facts.prompt": "{{text}}",
	})
	require.NoError(t, err)
	c := ownCatalog(t, "  large: {provider: zeta, aliases: [gpt-5, gpt-4]}\nroutes: {default: {paid: gpt-4, free: gpt-4}}", Settings{})
	steps, err := c.Plan(one, berth.TierPaid, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"large", "large"}, []string{steps[0].Model, steps[1].Model})
	require.Empty(t, c.Lacks(one))
	require.Equal(t, []string{"large"}, c.UsedModels([]*template.Template{one}))
}

// G12: an upstream without a key is not used where another one can be; the simulator serves only models of which none has a key.
func TestServedBy_MissingKeys_OthersUsed(t *testing.T) {
	t.Parallel()
	const local = "http://127.0.0.1:9999/v1"
	unreadable := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(unreadable, []byte("two\nlines"), 0o600))
	for name, row := range map[string]struct {
		upstreams string
		settings  Settings
		servedBy  map[string]string
		unkeyed   []string
		first     string // upstream of a call that names none
		code      berth.Code
	}{
		"all keys":               {"{provider: acme}, {provider: acme, name: second, keySetting: SECOND_KEY}", Settings{Keys: map[string]string{"ACME_KEY": "1", "SECOND_KEY": "2"}, LocalURL: local}, map[string]string{"acme": "acme", "second": "acme"}, nil, "acme", ""},
		"the key of the second":  {"{provider: acme}, {provider: acme, name: second, keySetting: SECOND_KEY}", Settings{Keys: map[string]string{"SECOND_KEY": "2"}, LocalURL: local}, map[string]string{"acme": "", "second": "acme"}, []string{"acme"}, "second", ""},
		"none needed by another": {"{provider: acme}, {provider: zeta}", Settings{LocalURL: local}, map[string]string{"acme": "", "zeta": "zeta"}, []string{"acme"}, "zeta", ""},
		"no key, local":          {"{provider: acme}, {provider: acme, name: second}", Settings{LocalURL: local}, map[string]string{"acme": LocalProvider, "second": LocalProvider}, nil, "acme", ""},
		"no key, no local":       {"{provider: acme}, {provider: acme, name: second}", Settings{}, map[string]string{"acme": "", "second": ""}, []string{"acme", "second"}, "", berth.CodeProviderKey},
		"unreadable key":         {"{provider: acme}, {provider: acme, name: second, keySetting: SECOND_KEY}", Settings{KeyFiles: map[string]string{"SECOND_KEY": unreadable}, LocalURL: local}, map[string]string{"acme": "", "second": ""}, []string{"acme", "second"}, "", berth.CodeProviderKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if row.settings.KeyFiles != nil { // becomes unreadable later
				require.NoError(t, os.WriteFile(unreadable, []byte("one"), 0o600))
			}
			c := ownCatalog(t, "  m: {upstreams: ["+row.upstreams+"]}\n", row.settings)
			if row.settings.KeyFiles != nil {
				require.NoError(t, os.WriteFile(unreadable, []byte("two\nlines"), 0o600))
			}
			for upstream, want := range row.servedBy {
				require.Equal(t, want, c.ServedBy("m", upstream), upstream)
			}
			require.Equal(t, row.unkeyed, c.Unkeyed("m"))
			u, _, err := c.endpoint("m", "")
			require.Equal(t, row.first, u.Name)
			if row.code == "" {
				require.NoError(t, err)
				require.NoError(t, c.Served("m"))
			} else {
				require.Equal(t, row.code, berth.CodeOf(err))
			}
		})
	}
}

// G12: a call is sent to its upstream with that one's id, key, bounds and fields; the messages are the same.
func TestStream_Upstream_RequestIsItsOwn(t *testing.T) {
	t.Parallel()
	type sent struct {
		key  string
		body map[string]any
	}
	var mu sync.Mutex
	var got []sent
	refuses := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := sent{key: r.Header.Get("Authorization")}
		_ = json.NewDecoder(r.Body).Decode(&s.body)
		mu.Lock()
		got = append(got, s)
		mu.Unlock()
		if s.body["stream_options"] != nil && refuses && s.body["model"] == "b-id" {
			http.Error(w, `{"error":{"message":"stream_options: unknown"}}`, http.StatusBadRequest)
			return
		}
		send(w, content("text"), stopChunk, doneLine)
	}))
	t.Cleanup(srv.Close)
	cfg, err := parseConfig("own.yaml", []byte("providers:\n  a: {baseURL: \""+srv.URL+"\", keySetting: A_KEY}\n"+
		"  b: {baseURL: \""+srv.URL+"\", keySetting: B_KEY, maxTokensField: max_completion_tokens}\nmodels:\n  m:\n    upstreams:\n"+
		"      - {provider: a}\n      - {provider: a, name: a2, keySetting: A2_KEY, id: a2-id, jsonMode: false, maxOutputTokens: 7}\n      - {provider: b, id: b-id}\n"))
	require.NoError(t, err)
	c, err := NewCatalog(cfg, Settings{KeyList: "A_KEY=one;A2_KEY=two;B_KEY=three"})
	require.NoError(t, err)
	client := NewClient(Fixed(c), srv.Client(), slog.New(slog.DiscardHandler))
	call, err := client.Prepare(Call{Model: "m", Messages: []Message{TextMessage(RoleUser, "Hello <b> \u2028 é?")}, JSON: true, MaxTokens: 50})
	require.NoError(t, err)
	for _, upstream := range []string{"a", "a2", "b", "b"} {
		call.Upstream = upstream
		res, err := client.Stream(t.Context(), call, nil)
		require.NoError(t, err)
		require.Equal(t, upstream, res.Upstream)
		require.Equal(t, upstream[:1], res.Provider)
	}
	messages := []any{map[string]any{"role": "user", "content": "Hello <b> \u2028 é?"}}
	options, object := map[string]any{"include_usage": true}, map[string]any{"type": "json_object"}
	learned := sent{"Bearer three", map[string]any{"model": "b-id", "messages": messages, "stream": true, "response_format": object, "max_completion_tokens": 50.0}}
	require.Equal(t, []sent{
		{"Bearer one", map[string]any{"model": "m", "messages": messages, "stream": true, "stream_options": options, "response_format": object, "max_tokens": 50.0}},
		{"Bearer two", map[string]any{"model": "a2-id", "messages": messages, "stream": true, "stream_options": options, "max_tokens": 7.0}},
		{"Bearer three", map[string]any{"model": "b-id", "messages": messages, "stream": true, "stream_options": options, "response_format": object, "max_completion_tokens": 50.0}},
		learned, learned, // what an upstream refuses is remembered for it
	}, got)

	call.Upstream = "gone"
	_, err = client.Stream(t.Context(), call, nil)
	require.Equal(t, ScopeUpstream, failure(t, err).Scope, "another process has another file")
	require.ErrorContains(t, err, `model m has no upstream "gone" in the routing file of this process`)
}

// A small context has room for texts, too: at most a half of it is kept for the instructions.
func TestModels_NoLimitOfAnUpstream_ThatOfTheModelNotUsed(t *testing.T) { // G12
	t.Parallel()
	content, err := ParseContent("routing.yaml", string(routingOf("  m: {provider: zeta, rpm: 60, tpm: 0, upstreams: [{name: a}, {name: b, rpm: 0, tpm: 5}]}\n")))
	require.NoError(t, err)
	c, err := NewCatalog(content.Config, Settings{})
	require.NoError(t, err)
	m, _ := c.Model("m")
	require.Equal(t, []int{60, 0, 0, 5}, []int{m.Upstreams[0].RPM, m.Upstreams[0].TPM, m.Upstreams[1].RPM, m.Upstreams[1].TPM})
}

func TestCheckCalls_ProvidersHang_BoundedAndConcurrent(t *testing.T) { // G12
	t.Parallel()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that its client left
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	content, err := ParseContent("routing.yaml", "providers: {p: {baseURL: "+hangs.URL+"}}\nmodels:\n  one: {provider: p}\n  two: {provider: p, upstreams: [{name: a}, {name: b}]}\n")
	require.NoError(t, err)
	c, err := NewCatalog(content.Config, Settings{})
	require.NoError(t, err)
	const within = 500 * time.Millisecond
	began := time.Now()
	all := NewClient(Fixed(c), hangs.Client(), slog.New(slog.DiscardHandler)).CheckCalls(t.Context(), within)
	require.Less(t, time.Since(began), 3*within)
	require.Len(t, all, 3)
	for _, check := range all {
		require.Equal(t, CauseTimeout, check.Cause)
		require.False(t, check.Fault.Certain)
		require.Equal(t, "no answer within 500ms", check.Fault.Said)
	}
}

func TestCheckContext_SmallContext_ShortTextFits(t *testing.T) {
	t.Parallel()
	c := ownCatalog(t, "  m: {provider: acme, contextTokens: 4000, maxOutputTokens: 500}\nroutes: {default: {paid: m, free: m}, resume_summary: {paid: m, free: m}}", Settings{})
	for words, fits := range map[int]bool{10: true, 1000: true, 3000: false} {
		err := checkContext(t, c, "resume_summary", berth.TierPaid, map[string]string{"resume": strings.Repeat("word ", words)})
		require.Equal(t, fits, err == nil, "%d words: %v", words, err)
	}
}

// G13: texts are checked against the upstream with the most room.
func TestCheckContext_Upstreams_MostRoomCounts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		sizes string
		fits  bool
	}{
		"too long for all":        {"{provider: acme, contextTokens: 20000}, {provider: zeta, contextTokens: 30000}", false},
		"fits one":                {"{provider: acme, contextTokens: 20000}, {provider: zeta, contextTokens: 100000}", true},
		"the room of one unknown": {"{provider: acme, contextTokens: 20000}, {provider: zeta}", true},
	} {
		c := ownCatalog(t, "  m: {upstreams: ["+row.sizes+"]}\nroutes: {default: {paid: m, free: m}, resume_summary: {paid: m, free: m}}", Settings{})
		err := checkContext(t, c, "resume_summary", berth.TierPaid, map[string]string{"resume": strings.Repeat("字", 60_000)})
		require.Equal(t, row.fits, err == nil, name)
	}
}
