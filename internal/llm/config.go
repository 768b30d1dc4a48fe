package llm

import (
	_ "embed"
	"fmt"
	"os"
	"time"

	"berth"
)

//go:embed routing.yaml
var builtinRouting []byte

// Config is a routing file: providers, models, and which model serves which template (T2, T27).
type Config struct {
	Providers map[string]ProviderConfig
	Models    map[string]ModelConfig
	Routes    map[berth.Template]Route
}

// ProviderConfig is one server of the OpenAI chat-completions protocol.
type ProviderConfig struct {
	BaseURL string
	// KeySetting names the setting that holds the API key, for instance DEEPSEEK_API_KEY. Empty: it needs none.
	KeySetting string
	// KeyOptional: it is called without a key when none is set.
	KeyOptional bool
	// MaxTokensField is how it names the bound of the answer: max_tokens or max_completion_tokens.
	MaxTokensField string
}

// ModelConfig is one model of a provider.
type ModelConfig struct {
	Provider string
	// ID is what the provider calls the model.
	ID string
	// Cap is how many calls may run at once, over all processes (T4).
	Cap             int
	MaxOutputTokens int
	Timeouts        Timeouts
	Price           Price
	// JSONMode: it understands response_format json_object.
	JSONMode bool
}

// Timeouts bound a silent provider: until the answer's first byte, and between two reads of it.
type Timeouts struct {
	FirstByte time.Duration
	Idle      time.Duration
}

// Price is in US dollars per million tokens; zero for a free model.
type Price struct {
	Input  float64
	Output float64
}

// Route is who serves a template, by tier.
type Route struct {
	Mode berth.Mode
	Paid string
	Free string
}

// What a routing file may leave out.
const (
	DefaultCap             = 5
	DefaultMaxOutputTokens = 8192
	DefaultFirstByte       = 60 * time.Second
	DefaultIdle            = 60 * time.Second
)

// LoadConfig reads a routing file, the built-in one for an empty path. Its error names the path of every
// wrong value and the line it is on.
func LoadConfig(path string) (Config, error) {
	if path == "" {
		return parseConfig("routing.yaml", builtinRouting)
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own file
	if err != nil {
		return Config{}, fmt.Errorf("read routing: %w", err)
	}
	return parseConfig(path, b)
}

// KeySettings lists the settings that may hold API keys, sorted.
func (c Config) KeySettings() []string {
	set := map[string]bool{}
	for _, p := range c.Providers {
		if p.KeySetting != "" {
			set[p.KeySetting] = true
		}
	}
	return sortedKeys(set)
}

func parseConfig(file string, src []byte) (Config, error) {
	root, err := parseYAML(file, src)
	if err != nil {
		return Config{}, err
	}
	var c Config
	root.object(map[string]func(value){
		"providers": func(v value) {
			c.Providers = map[string]ProviderConfig{}
			v.entries(func(name string, v value) { c.Providers[name] = v.provider() })
		},
		"models": func(v value) {
			c.Models = map[string]ModelConfig{}
			v.entries(func(name string, v value) { c.Models[name] = v.model(name) })
		},
		"routes": func(v value) {
			c.Routes = map[berth.Template]Route{}
			v.entries(func(name string, v value) { c.Routes[berth.Template(name)] = v.route() })
		},
	}, "providers", "models", "routes")
	c.check(root)
	if err := root.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (v value) provider() ProviderConfig {
	p := ProviderConfig{MaxTokensField: maxTokens}
	v.object(map[string]func(value){
		"baseURL":        func(v value) { p.BaseURL = v.url() },
		"keySetting":     func(v value) { p.KeySetting = v.matching(settingName, "the name of a setting, like DEEPSEEK_API_KEY") },
		"keyOptional":    func(v value) { p.KeyOptional = v.boolean() },
		"maxTokensField": func(v value) { p.MaxTokensField = v.oneOf(maxTokens, maxCompletionTokens) },
	}, "baseURL")
	return p
}

func (v value) model(name string) ModelConfig {
	m := ModelConfig{
		ID: name, Cap: DefaultCap, MaxOutputTokens: DefaultMaxOutputTokens, JSONMode: true,
		Timeouts: Timeouts{FirstByte: DefaultFirstByte, Idle: DefaultIdle},
	}
	v.object(map[string]func(value){
		"provider":        func(v value) { m.Provider = v.text() },
		"id":              func(v value) { m.ID = v.text() },
		"cap":             func(v value) { m.Cap = v.integer(1, 10_000) },
		"maxOutputTokens": func(v value) { m.MaxOutputTokens = v.integer(1, 1_000_000) },
		"jsonMode":        func(v value) { m.JSONMode = v.boolean() },
		"timeouts": func(v value) {
			v.object(map[string]func(value){
				"firstByte": func(v value) { m.Timeouts.FirstByte = v.duration() },
				"idle":      func(v value) { m.Timeouts.Idle = v.duration() },
			})
		},
		"price": func(v value) {
			v.object(map[string]func(value){
				"input":  func(v value) { m.Price.Input = v.price() },
				"output": func(v value) { m.Price.Output = v.price() },
			})
		},
	}, "provider")
	return m
}

func (v value) route() Route {
	var r Route
	v.object(map[string]func(value){
		"mode": func(v value) {
			r.Mode = berth.Mode(v.oneOf(string(berth.ModeStream), string(berth.ModeBatch), string(berth.ModeVision)))
		},
		"paid": func(v value) { r.Paid = v.text() },
		"free": func(v value) { r.Free = v.text() },
	}, "mode", "paid", "free")
	return r
}

// check is what no single value can tell: names that must exist, and modes that fit their templates.
func (c Config) check(root value) {
	for _, name := range sortedKeys(c.Models) {
		at := root.at("models", name)
		if !modelName.MatchString(name) {
			at.wrong("a model's name has letters, digits, dot, dash and underscore only, at most 64; its provider's name for it goes into id")
		}
		if p := c.Models[name].Provider; p != "" {
			if _, ok := c.Providers[p]; !ok {
				at.at("provider").wrong("no provider %q under providers", p)
			}
		}
	}
	for _, t := range sortedKeys(c.Routes) {
		at, r := root.at("routes", string(t)), c.Routes[t]
		want := t.Spec().Mode
		switch {
		case want == "":
			at.wrong("no such template")
			continue
		case r.Mode != "" && r.Mode != want:
			at.at("mode").wrong("%s answers as %s", t, want)
		}
		for _, tier := range []struct{ name, model string }{{"paid", r.Paid}, {"free", r.Free}} {
			if _, ok := c.Models[tier.model]; !ok && tier.model != "" {
				at.at(tier.name).wrong("no model %q under models", tier.model)
			}
		}
	}
	if c.Routes == nil {
		return
	}
	for _, t := range berth.StepTemplates() {
		if _, ok := c.Routes[t]; !ok {
			root.at("routes", string(t)).wrong("is missing")
		}
	}
}
