package llm

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/template"
	"berth/internal/testtemplate"
)

func builtin(t *testing.T, s Settings) *Catalog {
	t.Helper()
	cfg, err := LoadConfig("")
	require.NoError(t, err)
	c, err := NewCatalog(cfg, s)
	require.NoError(t, err)
	return c
}

// Each row of the routing table that T2 demands.
func TestPlan_EachTemplateAndTier_MatchesRoutingTable(t *testing.T) {
	t.Parallel()
	c := builtin(t, Settings{})
	const chat, reasoner, flash = "deepseek-chat", "deepseek-reasoner", "glm-4.5-flash"
	for _, row := range []struct {
		template   berth.Template
		paid, free string
		paidQueue  berth.Queue
		freeQueue  berth.Queue
	}{
		{"resume_summary", chat, flash, "q_paid_batch", "q_free_batch"},
		{"detailed_resume_summary", reasoner, flash, "q_paid_batch", "q_free_batch"},
		{"job_summary", chat, flash, "q_paid_batch", "q_free_batch"},
		{"job_match", reasoner, flash, "q_paid_stream", "q_free_stream"},
		{"interview_prep", chat, flash, "q_paid_stream", "q_free_stream"},
		{"resume_customize", chat, flash, "q_paid_batch", "q_free_batch"},
	} {
		for tier, want := range map[berth.Tier]struct {
			model string
			queue berth.Queue
		}{berth.TierPaid: {row.paid, row.paidQueue}, berth.TierFree: {row.free, row.freeQueue}} {
			one := testtemplate.Find(t, row.template)
			steps, err := c.Plan(one, tier, nil)
			require.NoError(t, err)
			last := steps[len(steps)-1]
			require.Equal(t, want.model, last.Model, "%s %s", row.template, tier)
			require.Equal(t, want.queue, last.Queue, "%s %s", row.template, tier)

			withImage, err := c.Plan(one, tier, map[string]berth.VariableKind{"image": berth.KindImageAsset})
			require.NoError(t, err)
			require.Equal(t, steps, withImage[1:], "after the image the chain is the same")
			require.Equal(t, berth.Step{
				Name: "ocr", Mode: berth.ModeVision,
				Queue: berth.Queue("q_" + string(tier) + "_vision"), Model: "glm-4.1v-thinking-flash", Status: "OCR_PENDING",
			}, withImage[0])
		}
	}
}

func TestPlan_JobMatch_SummaryFirst(t *testing.T) {
	t.Parallel()
	steps, err := builtin(t, Settings{}).Plan(testtemplate.Find(t, "job_match"), berth.TierPaid, nil)
	require.NoError(t, err)
	require.Equal(t, []berth.Step{
		{Name: "summary", Mode: "batch", Queue: "q_paid_batch", Model: "deepseek-chat", Status: "SUMMARY_PENDING"},
		{Name: "match", Mode: "stream", Queue: "q_paid_stream", Model: "deepseek-reasoner", Status: "MATCH_PENDING"},
	}, steps)
}

func TestUses_BuiltInFile_QueuesOfEachModel(t *testing.T) {
	t.Parallel()
	c := builtin(t, Settings{})
	require.Equal(t, map[Use]bool{
		{"q_free_batch", "glm-4.5-flash"}: true, {"q_free_stream", "glm-4.5-flash"}: true, {"q_free_vision", "glm-4.1v-thinking-flash"}: true,
		{"q_paid_batch", "deepseek-chat"}: true, {"q_paid_batch", "deepseek-reasoner"}: true,
		{"q_paid_stream", "deepseek-chat"}: true, {"q_paid_stream", "deepseek-reasoner"}: true, {"q_paid_vision", "glm-4.1v-thinking-flash"}: true,
	}, c.Uses(testtemplate.All()))
	require.Equal(t, []string{"deepseek-chat", "deepseek-reasoner", "glm-4.1v-thinking-flash", "glm-4.5-flash"}, c.UsedModels(testtemplate.All()))
}

// G10: the queues of document 002 are those of a file that names none.
func TestQueues_FileWithoutQueues_SixQueues(t *testing.T) {
	t.Parallel()
	cfg, err := parseConfig("own.yaml", []byte("providers: {p: {baseURL: http://p}}\nmodels: {m: {provider: p}}\n"))
	require.NoError(t, err)
	c, err := NewCatalog(cfg, Settings{})
	require.NoError(t, err)
	require.Equal(t, builtin(t, Settings{}).QueueWeights(), c.QueueWeights())
	require.Equal(t, map[berth.Queue]int{
		"q_paid_stream": 8, "q_paid_batch": 4, "q_paid_vision": 4, "q_free_stream": 2, "q_free_batch": 1, "q_free_vision": 1,
	}, c.QueueWeights())
	require.EqualValues(t, "q_paid_stream", c.Queues()[0])
}

// G10: the queue of a call is the one that names its tier and mode most exactly.
func TestQueues_OwnQueues_TakeCallsOfTierAndMode(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		queues string
		want   map[string]berth.Queue // by tier and mode; the others have queue other
		err    string
	}{
		"one for all":    {queues: "other: {}"},
		"one for a tier": {queues: "vip: {tier: paid, weight: 9}, other: {}", want: map[string]berth.Queue{"paid stream": "vip", "paid batch": "vip", "paid vision": "vip"}},
		"both before one": {
			queues: "chat: {tier: paid, mode: stream}, vip: {tier: paid}, other: {}",
			want:   map[string]berth.Queue{"paid stream": "chat", "paid batch": "vip", "paid vision": "vip"},
		},
		"none takes": {queues: "chat: {mode: stream}", err: "own.yaml: queues (line 3): no queue takes calls of tier paid and mode batch: add one with both, with one of them, or with neither"},
		"two take": {
			queues: "other: {}, streams: {mode: stream}, vip: {tier: paid}",
			err:    "own.yaml: queues.vip (line 3): takes calls of tier paid and mode stream as streams does: change tier or mode of one of them",
		},
		"unknown tier":  {queues: "other: {tier: gold}", err: "own.yaml: queues.other.tier (line 3): "},
		"weight of 0":   {queues: "other: {weight: 0}", err: "own.yaml: queues.other.weight (line 3): "},
		"capital":       {queues: "Other: {}", err: "own.yaml: queues.Other (line 3): must be the name of a queue: small letters, digits, _ and -, at most 64, the first one a letter"},
		"no queues":     {queues: "", err: "own.yaml: queues (line 3): "},
		"unknown field": {queues: "other: {wait: 1}", err: "own.yaml: queues.other.wait (line 3): unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := parseConfig("own.yaml", []byte("providers: {p: {baseURL: http://p}}\nmodels: {m: {provider: p}}\nqueues: {"+row.queues+"}\n"))
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			c, err := NewCatalog(cfg, Settings{})
			require.NoError(t, err)
			for _, tier := range tiers {
				for _, mode := range modes {
					call := string(tier) + " " + string(mode)
					require.Equal(t, cmp.Or(row.want[call], "other"), c.queueFor(tier, mode), call)
				}
			}
		})
	}
}

func TestModels_BuiltInFile_DefaultsAndPrices(t *testing.T) {
	t.Parallel()
	c := builtin(t, Settings{})
	var got []string
	for _, m := range c.Models() {
		got = append(got, m.Name)
		require.Equal(t, 5, m.Cap)
		require.Len(t, m.Upstreams, 1)
		u := m.Upstreams[0]
		require.Equal(t, m.Name, u.ID)
		require.Equal(t, u.Provider, u.Name)
		require.GreaterOrEqual(t, u.MaxOutputTokens, 8192)
		require.Positive(t, u.Timeouts.FirstByte)
		require.Positive(t, u.Timeouts.Idle)
	}
	require.Equal(t, []string{"deepseek-chat", "deepseek-reasoner", "glm-4.1v-thinking-flash", "glm-4.5-flash"}, got)

	free, _ := c.Model("glm-4.5-flash")
	require.Zero(t, free.Upstreams[0].CostMicros(berth.Usage{InputTokens: 1e6, OutputTokens: 1e6}))
	paid, _ := c.Model("deepseek-chat")
	require.EqualValues(t, 280_000+420_000, paid.Upstreams[0].CostMicros(berth.Usage{InputTokens: 1e6, OutputTokens: 1e6}))
}

func TestEndpoint_KeyAndLocalSettings_ProviderChosen(t *testing.T) {
	t.Parallel()
	const local = "http://127.0.0.1:9999/v1"
	for name, row := range map[string]struct {
		settings      Settings
		servedBy, url string
	}{
		"key":                     {Settings{Keys: map[string]string{"DEEPSEEK_API_KEY": " sk-1\n"}, LocalURL: local}, "deepseek", "https://api.deepseek.com"},
		"no key, local":           {Settings{LocalURL: local}, LocalProvider, local},
		"blank key is not a key":  {Settings{Keys: map[string]string{"DEEPSEEK_API_KEY": "  "}, LocalURL: local}, LocalProvider, local},
		"key of another provider": {Settings{Keys: map[string]string{"ZHIPUAI_API_KEY": "z"}, LocalURL: local}, LocalProvider, local},
		"no key, no local":        {Settings{}, "", ""},
		"key, other address":      {Settings{Keys: map[string]string{"DEEPSEEK_API_KEY": "k"}, BaseURLs: map[string]string{"deepseek": "http://proxy:1"}}, "deepseek", "http://proxy:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := builtin(t, row.settings)
			require.Equal(t, row.servedBy, c.ServedBy("deepseek-chat", "deepseek"))
			_, ep, err := c.endpoint("deepseek-chat", "")
			if row.servedBy == "" {
				require.Equal(t, berth.CodeProviderKey, berth.CodeOf(err))
				require.ErrorContains(t, err, "DEEPSEEK_API_KEY")
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.url, ep.baseURL)
			require.Equal(t, "deepseek-chat", ep.modelID)
			if row.servedBy == LocalProvider {
				require.Empty(t, ep.key, "no key goes to the local server")
			}
		})
	}
}

func TestEndpoint_ProviderWithoutKey_Used(t *testing.T) {
	t.Parallel()
	c, err := NewCatalog(load(t, rewrite(t, "models:\n",
		"  ollama: {baseURL: \"http://127.0.0.1:11434/v1\"}\n"+
			"  vllm: {baseURL: \"http://127.0.0.1:8000/v1\", keySetting: VLLM_KEY, keyOptional: true}\n"+
			"models:\n  qwen: {provider: ollama, id: \"qwen3:8b\"}\n  llama: {provider: vllm}\n")), Settings{LocalURL: "http://127.0.0.1:1/v1"})
	require.NoError(t, err)
	_, qwen, err := c.endpoint("qwen", "")
	require.NoError(t, err)
	require.Equal(t, "ollama", qwen.servedBy)
	require.Equal(t, "qwen3:8b", qwen.modelID)
	_, llama, err := c.endpoint("llama", "")
	require.NoError(t, err)
	require.Equal(t, "vllm", llama.servedBy)
	m, _ := c.Model("qwen")
	u := m.Upstreams[0]
	require.Equal(t, DefaultCap, u.Cap)
	require.Equal(t, DefaultMaxOutputTokens, u.MaxOutputTokens)
	require.Equal(t, Timeouts{FirstByte: time.Minute, Idle: time.Minute, Whole: 10 * time.Minute}, u.Timeouts)
}

func TestNewCatalog_InvalidSetting_SettingNamed(t *testing.T) {
	t.Parallel()
	cfg, err := LoadConfig("")
	require.NoError(t, err)
	for name, row := range map[string]struct {
		settings Settings
		want     string
	}{
		"key with a line break": {Settings{Keys: map[string]string{"DEEPSEEK_API_KEY": "sk-secret\nX: y"}}, "DEEPSEEK_API_KEY"},
		"unknown provider":      {Settings{BaseURLs: map[string]string{"acme": "http://x"}}, `"acme"`},
		"no URL":                {Settings{BaseURLs: map[string]string{"zhipu": "nowhere"}}, "zhipu"},
		"local without scheme":  {Settings{LocalURL: "127.0.0.1:80"}, "BERTH_LOCAL_MODEL_URL"},
	} {
		_, err := NewCatalog(cfg, row.settings)
		require.ErrorContains(t, err, row.want, name)
		require.NotContains(t, err.Error(), "secret")
	}
}

// rewrite writes the built-in file with one text replaced to a temporary file and returns its path.
func rewrite(t *testing.T, from, to string) string {
	t.Helper()
	require.Contains(t, string(builtinRouting), from)
	path := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(builtinRouting), from, to, 1)), 0o600))
	return path
}

func load(t *testing.T, path string) Config {
	t.Helper()
	cfg, err := LoadConfig(path)
	require.NoError(t, err)
	return cfg
}

// lineOf matches a text whose line is expected in a message.
var lineOf = regexp.MustCompile(`@[^@]+@`)

func TestLoadConfig_InvalidValue_PathNamed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ from, to, want string }{
		{"cap: 5", "cap: five", "models.deepseek-chat.cap (line @cap: five@): must be a number of concurrent calls, at most 10000, or auto"},
		{"cap: 5", "cap: 0", "models.deepseek-chat.cap"},
		{"cap: 5", "caps: 5", "models.deepseek-chat.caps (line @caps: 5@): unknown field; see docs/providers.md"},
		{"cap: 5", "provider: zhipu", "line @provider: zhipu@: mapping key \"provider\" already defined at line @provider: deepseek\n@"},
		{"provider: deepseek", "provider: deepsea", `models.deepseek-chat.provider (line @provider: deepsea@): no provider "deepsea"`},
		{"provider: deepseek", "id: x", "models.deepseek-chat (line @id: x@): missing property 'provider'"},
		{"firstByte: 60s", "firstByte: 60", "models.deepseek-chat.timeouts.firstByte"},
		{"firstByte: 60s", "first: 60s", "models.deepseek-chat.timeouts.first (line @first: 60s@): unknown field"},
		{"{input: 0.28", "{input: -1", "models.deepseek-chat.price.input"},
		{"{input: 0.28", "{input: .nan", "models.deepseek-chat.price.input"},
		{"contextTokens: 131072", "contextTokens: 8192", "models.deepseek-chat.contextTokens"},
		{"maxOutputTokens: 8192", "maxOutputTokens: [1]", "models.deepseek-chat.maxOutputTokens"},
		{"maxOutputTokens: 8192", "jsonMode: sometimes", "models.deepseek-chat.jsonMode"},
		{"https://api.deepseek.com", "api.deepseek.com", "providers.deepseek.baseURL"},
		{"https://api.deepseek.com", "https://me:pw@api.deepseek.com", "providers.deepseek.baseURL"},
		{"keySetting: DEEPSEEK_API_KEY", "keySetting: sk-abc", "providers.deepseek.keySetting (line @keySetting: sk-abc@): must be the name of a setting"},
		{"keySetting: DEEPSEEK_API_KEY", "maxTokensField: tokens", "providers.deepseek.maxTokensField"},
		{"baseURL: https://api.deepseek.com", "keyOptional: true", "providers.deepseek (line @keyOptional: true\n@): missing property 'baseURL'"},
		{"  deepseek-chat:", "  deepseek/chat:", "models.deepseek/chat (line @  deepseek/chat:@): must be the name of a model: letters, digits, dots, _ and -, at most 64, the first one a letter or digit"},
		{"default: {paid: deepseek-chat", "default: {paid: gpt", `routes.default.paid (line @paid: gpt@): no model "gpt"`},
		{"default: {paid: deepseek-chat", "triage.facts: {paid: gpt", `routes.triage.facts.paid (line @paid: gpt@): no model "gpt"`},
		{"default: {paid: deepseek-chat", "triage: {credits: -1, paid: deepseek-chat", "routes.triage.credits"},
		{"default: {paid: deepseek-chat", "default: {credits: 1, paid: deepseek-chat", "routes.default.credits (line @default: {credits@): only a template has a price"},
		{"default: {paid: deepseek-chat", "triage.facts: {credits: 1, paid: deepseek-chat", "only a template has a price"},
		{"default: {paid: deepseek-chat", "default: {mode: batch, paid: deepseek-chat", "routes.default.mode (line @{mode: batch@): unknown field"},
		{"  default:", "  Triage:", "routes.Triage (line @  Triage:@): must be default, the name of a template such as ticket_summary, or of one of its steps"},
		{"models:", "model:", "missing property 'models'"},
		{"providers:\n", "providers: none\nx:\n", "providers (line @providers: none@): got string, want object"},
	} {
		path := rewrite(t, row.from, row.to)
		src, err := os.ReadFile(path) //nolint:gosec // the test's own file
		require.NoError(t, err)
		want := lineOf.ReplaceAllStringFunc(row.want, func(text string) string {
			before, _, found := strings.Cut(string(src), strings.Trim(text, "@"))
			require.True(t, found, text)
			return strconv.Itoa(1 + strings.Count(before, "\n"))
		})
		_, err = LoadConfig(path)
		require.ErrorContains(t, err, want, "%s -> %s", row.from, row.to)
	}
}

// FI5: a file as editors of other systems write it is read. What such an editor hides, and a text that is not YAML, is an error of one line.
func TestLoadConfig_FileOfAnEditor_ReadOrLineNamed(t *testing.T) {
	t.Parallel()
	const indent = "\n  deepseek:"
	for name, c := range map[string]struct {
		change func(src string) string
		want   string // empty: it is read
	}{
		"byte order mark":        {change: func(src string) string { return "\ufeff" + src }},
		"CRLF":                   {change: func(src string) string { return strings.ReplaceAll(src, "\n", "\r\n") }},
		"byte order mark, CRLF":  {change: func(src string) string { return "\ufeff" + strings.ReplaceAll(src, "\n", "\r\n") }},
		"UTF-16":                 {change: func(src string) string { return "\xff\xfe" + strings.Join(strings.Split(src, ""), "\x00") + "\x00" }},
		"tab":                    {func(src string) string { return strings.Replace(src, indent, "\n\tdeepseek:", 1) }, "line 11 is indented with a tab (U+0009): indent with spaces"},
		"tab after spaces":       {func(src string) string { return strings.Replace(src, indent, "\n \tdeepseek:", 1) }, "line 11 is indented with a tab (U+0009): indent with spaces"},
		"no-break space":         {func(src string) string { return strings.Replace(src, indent, "\n\u00a0 deepseek:", 1) }, "line 11 is indented with a no-break space (U+00A0): indent with spaces"},
		"ideographic space":      {func(src string) string { return strings.Replace(src, indent, "\n\u3000deepseek:", 1) }, "line 11 is indented with an invisible character (U+3000): indent with spaces"},
		"tab, byte order mark":   {func(src string) string { return "\ufeff" + strings.Replace(src, indent, "\n\tdeepseek:", 1) }, "line 11 is indented with a tab"},
		"Latin-1":                {func(src string) string { return src + "# caf\xe9\n" }, "is not UTF-8: save the file in this encoding"},
		"key twice":              {func(src string) string { return src + "models: {}\nmodels: {}\n" }, `mapping key "models" already defined at line 25`},
		"quotes that do not end": {func(src string) string { return strings.Replace(src, "deepseek", `"deepseek`, 1) }, "yaml: "},
	} {
		path := filepath.Join(t.TempDir(), "routing.yaml")
		require.NoError(t, os.WriteFile(path, []byte(c.change(string(builtinRouting))), 0o600))
		_, err := LoadConfig(path)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "\n", name)
	}
}

func TestLoadCatalog_InvalidFile_Rejected(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"empty": "", "text": "hello", "list": "- a", "broken": "a: [", "two documents": "a: b\n---\nc: d\n", "alias": "providers: {}\nmodels: *x\nroutes: {}\n",
	} {
		path := filepath.Join(t.TempDir(), "routing.yaml")
		require.NoError(t, os.WriteFile(path, []byte(src), 0o600))
		_, err := LoadCatalog(path)
		require.ErrorContains(t, err, "routing.yaml", name)
	}
	_, err := LoadCatalog(filepath.Join(t.TempDir(), "absent.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Cached input costs what the routing file says, and as much as other input if it says nothing.
func TestCostMicros_CachedInput_AtItsPrice(t *testing.T) { // FA12
	t.Parallel()
	half, free := 0.5, 0.0
	usage := berth.Usage{InputTokens: 1000, CachedTokens: 800, OutputTokens: 100}
	for name, row := range map[string]struct {
		price Price
		usage berth.Usage
		want  int64
	}{
		"no price of its own":      {Price{Input: 2, Output: 3}, usage, 2300},
		"cheaper":                  {Price{Input: 2, CachedInput: &half, Output: 3}, usage, 400 + 400 + 300},
		"free":                     {Price{Input: 2, CachedInput: &free, Output: 3}, usage, 400 + 300},
		"nothing cached":           {Price{Input: 2, CachedInput: &free, Output: 3}, berth.Usage{InputTokens: 1000, OutputTokens: 100}, 2300},
		"more cached than input":   {Price{Input: 2, CachedInput: &free}, berth.Usage{InputTokens: 10, CachedTokens: 20}, 0},
		"a free model":             {Price{}, usage, 0},
		"less than nothing cached": {Price{Input: 2, CachedInput: &free}, berth.Usage{InputTokens: 10, CachedTokens: -5}, 20},
	} {
		require.Equal(t, row.want, Upstream{Price: row.price}.CostMicros(row.usage), name)
	}
	cfg, err := LoadConfig(rewrite(t, "cachedInput: 0.028", "cachedInput: 0"))
	require.NoError(t, err)
	require.Zero(t, *cfg.Models["deepseek-chat"].Price.CachedInput)
	_, err = LoadConfig(rewrite(t, "cachedInput: 0.028", "cachedInput: -1"))
	require.ErrorContains(t, err, "cachedInput")
}

// docs/providers.md describes each field of the routing file, and its example is one.
func TestDocs_RoutingFile_DescribedWithAValidExample(t *testing.T) { // FM5
	t.Parallel()
	docs, err := os.ReadFile("../../docs/providers.md")
	require.NoError(t, err)
	examples := regexp.MustCompile("(?s)```yaml\n(providers:.*?)```\n").FindAllSubmatch(docs, -1)
	require.Len(t, examples, 3, "of models, of their upstreams, and of an import")
	for _, example := range examples {
		_, err = parseConfig("docs/providers.md", example[1])
		require.NoError(t, err)
	}
	schema, err := os.ReadFile("routing.schema.json")
	require.NoError(t, err)
	for _, kind := range []string{"provider", "model", "upstream", "route"} {
		gjson.GetBytes(schema, "$defs."+kind+".properties").ForEach(func(field, value gjson.Result) bool {
			if strings.HasPrefix(value.Get("$ref").Str, "#/$defs/model/") {
				return true // described as the model's
			}
			names := []string{field.Str}
			value.Get("properties").ForEach(func(inner, _ gjson.Result) bool {
				names = append(names, field.Str+"."+inner.Str)
				return true
			})
			for _, name := range names[min(1, len(names)-1):] {
				require.Contains(t, string(docs), "`"+name+"`", kind)
			}
			return true
		})
	}
}

// G4, G8: who names the model of a step, and what is reported where the routing file lacks it.
func TestRouting_RoutesAndTemplates_MostSpecificNamesTheModel(t *testing.T) {
	t.Parallel()
	one, err := template.Load("triage", map[string]string{
		"template.yaml": "title: T\nvariables: [{name: photo, kind: image, required: true}]\nsteps:\n" +
			"  - {id: read, into: text, models: eyes}\n  - {id: facts, into: facts, models: {paid: big}}\n  - {id: advice}\n",
		"read.prompt": "{{media url=photo}}", "facts.prompt": "{{text}}", "advice.prompt": "{{facts}}",
	})
	require.NoError(t, err)
	catalog := func(models []string, routes map[string]Route) *Catalog {
		cfg := Config{Models: map[string]ModelConfig{}, Routes: routes}
		for _, m := range models {
			cfg.Models[m] = ModelConfig{}
		}
		c, err := NewCatalog(cfg, Settings{})
		require.NoError(t, err)
		return c
	}
	all := []string{"eyes", "big", "a", "b"}
	for name, c := range map[string]struct {
		models []string
		routes map[string]Route
		want   string // of the steps in the paid tier, then in the free tier
		lacks  []string
	}{
		"named by the template": {all, map[string]Route{"default": {Paid: "a", Free: "b"}}, "eyes template, big template, a default; eyes template, b default, b default", nil},
		"a step's own route":    {all, map[string]Route{"triage.facts": {Paid: "a"}, "triage": {Paid: "b", Free: "b"}}, "eyes template, a triage.facts, b triage; eyes template, b triage, b triage", nil},
		"unknown models": {
			[]string{"a"},
			map[string]Route{"default": {Paid: "a", Free: "a"}, "vision": {Paid: "a", Free: "a"}},
			"a vision, a default, a default; a vision, a default, a default",
			[]string{
				"step read uses a, because the routing file (BERTH_ROUTING_FILE) has no model eyes: add it to models, or a route triage.read",
				"step facts uses a in the paid tier, because the routing file (BERTH_ROUTING_FILE) has no model big: add it to models, or a route triage.facts",
			},
		},
		"unknown models, of which others take the place": {
			[]string{"a", "b"},
			map[string]Route{"default": {Paid: "a", Free: "b"}, "vision": {Paid: "a", Free: "b"}},
			"a vision, a default, a default; b vision, b default, b default",
			[]string{
				"step read uses a in the paid tier and b in the free tier, because the routing file (BERTH_ROUTING_FILE) has no model eyes: add it to models, or a route triage.read",
				"step facts uses a in the paid tier, because the routing file (BERTH_ROUTING_FILE) has no model big: add it to models, or a route triage.facts",
			},
		},
		"nothing": {nil, nil, " ,  ,  ;  ,  ,  ", []string{
			"step read has no model, because the routing file (BERTH_ROUTING_FILE) has no model eyes", "step facts has no model in the paid tier, because",
			"step facts has no model in the free tier: add a route triage.facts", "step advice has no model in the paid and free tier: add a route triage.advice",
		}},
	} {
		routed := catalog(c.models, c.routes)
		byTier := map[berth.Tier][]string{}
		for _, r := range routed.Routing(one) {
			byTier[r.Tier] = append(byTier[r.Tier], r.Model+" "+r.By)
		}
		require.Equal(t, c.want, strings.Join(byTier[berth.TierPaid], ", ")+"; "+strings.Join(byTier[berth.TierFree], ", "), name)
		lacks := routed.Lacks(one)
		require.Len(t, lacks, len(c.lacks), "%s: %v", name, lacks)
		for i, want := range c.lacks {
			require.Contains(t, strings.Join(lacks, "\n"), want, "%s %d", name, i)
		}
		_, err := routed.Plan(one, berth.TierPaid, map[string]berth.VariableKind{"photo": berth.KindImageAsset})
		require.Equal(t, len(c.models) == 0, berth.CodeOf(err) == berth.CodeUnavailable, name)
	}
	unused := catalog(nil, map[string]Route{"default": {}, "vision": {}, "triage": {}, "triage.facts": {}, "triage.mood": {}, "poem": {}}).UnusedRoutes([]*template.Template{one})
	require.Len(t, unused, 2)
	require.Contains(t, unused[0], "routes.poem in the routing file (BERTH_ROUTING_FILE): no template poem")
	require.Contains(t, unused[1], "template triage has no step mood")
}

// Of many steps, a line counts them and names their templates.
func TestLacksOfAll_FewOrManySteps_FewLines(t *testing.T) { // G4
	t.Parallel()
	templates := func(n int) (list []*template.Template) {
		for i := range n {
			list = append(list, &template.Template{Name: berth.Template(fmt.Sprintf("t%d", i)), Steps: []template.Step{
				{ID: "a", Models: template.Models{Paid: "big", Free: "big"}}, {ID: "b"},
			}})
		}
		return list
	}
	catalog := func(models ...string) *Catalog {
		cfg := Config{Models: map[string]ModelConfig{}, Routes: map[string]Route{}}
		for _, m := range models {
			cfg.Models[m] = ModelConfig{}
			cfg.Routes["default"] = Route{Paid: m, Free: m}
		}
		c, err := NewCatalog(cfg, Settings{})
		require.NoError(t, err)
		return c
	}
	for name, row := range map[string]struct {
		templates   int
		next, known *Catalog
		want        []string
	}{
		"nothing":                               {1, catalog("big"), nil, nil},
		"few":                                   {1, catalog(), nil, []string{"template t0: step a has no model, because", "template t0: step b has no model in the paid and free tier"}},
		"many":                                  {2, catalog(), nil, []string{"4 steps of 2 templates have no model: t0, t1: add the models"}},
		"very many":                             {22, catalog(), nil, []string{"44 steps of 22 templates have no model: t0, t1, t2"}},
		"known before":                          {2, catalog(), catalog(), nil},
		"of which one has the model of a route": {4, catalog("small"), nil, []string{"4 steps of 4 templates use the model of a route, because"}},
		"known before in another way":           {4, catalog("small"), catalog(), []string{"4 steps of 4 templates use the model of a route, because"}},
	} {
		got := row.next.LacksOfAll(templates(row.templates), row.known)
		require.Len(t, got, len(row.want), "%s: %v", name, got)
		for i, want := range row.want {
			require.Contains(t, got[i], want, name)
		}
	}
	require.Contains(t, catalog().LacksOfAll(templates(22), nil)[0], "t18, t19 and 2 more: ")
}
