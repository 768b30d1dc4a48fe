package llm

import (
	"fmt"
	"math"
	"strings"

	"berth"
)

// LocalProvider is the provider's name in answers of the model simulator.
const LocalProvider = "local stand-in"

// Settings is what a deployment adds to a routing file. None of it is logged.
type Settings struct {
	// Keys holds API keys by the name of their setting, for instance DEEPSEEK_API_KEY.
	Keys map[string]string
	// BaseURLs replaces the address of a provider, by the provider's name.
	BaseURLs map[string]string
	// LocalURL is the base URL of the local model server, which serves the models of providers without a key.
	// Empty: there is none, and calls of such models fail with berth.CodeProviderKey.
	LocalURL string
}

// Model is one model as this deployment can call it.
type Model struct {
	Name            string
	ID              string
	Provider        string
	Cap             int
	MaxOutputTokens int
	Timeouts        Timeouts
	Price           Price
	// ServedBy is the provider that serves the model, LocalProvider, or empty if a key is missing.
	ServedBy string
}

// CostMicros is what a call costs, in millionths of a US dollar.
func (m Model) CostMicros(u berth.Usage) int64 {
	return int64(math.Round(float64(u.InputTokens)*m.Price.Input + float64(u.OutputTokens)*m.Price.Output))
}

// Catalog answers which model serves what and where it is. It never changes and may be used from everywhere.
type Catalog struct {
	cfg      Config
	settings Settings
}

// LoadCatalog is the catalog of a routing file ("": the built-in one) without any keys: enough to plan, not to call.
func LoadCatalog(path string) (*Catalog, error) {
	cfg, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	return NewCatalog(cfg, Settings{})
}

// NewCatalog joins a routing file with the settings of a deployment. Its error names the setting that is wrong.
func NewCatalog(cfg Config, s Settings) (*Catalog, error) {
	c := &Catalog{cfg: cfg, settings: Settings{
		Keys: map[string]string{}, BaseURLs: map[string]string{}, LocalURL: s.LocalURL,
	}}
	for _, name := range sortedKeys(s.Keys) {
		key := strings.TrimSpace(s.Keys[name])
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("%s: holds characters no API key has", name)
		}
		if key != "" {
			c.settings.Keys[name] = key
		}
	}
	for _, name := range sortedKeys(s.BaseURLs) {
		if _, ok := cfg.Providers[name]; !ok {
			return nil, fmt.Errorf("base URL of provider %q: provider not found", name)
		}
		if s.BaseURLs[name] == "" {
			continue
		}
		if err := checkBaseURL(s.BaseURLs[name]); err != nil {
			return nil, fmt.Errorf("base URL of provider %s: %w", name, err)
		}
		c.settings.BaseURLs[name] = s.BaseURLs[name]
	}
	if s.LocalURL != "" {
		if err := checkBaseURL(s.LocalURL); err != nil {
			return nil, fmt.Errorf("base URL of the local model server: %w", err)
		}
	}
	return c, nil
}

// Plan returns the chain of model calls of a template, with queue and model fixed by tier; nil for a template that cannot
// be submitted.
func (c *Catalog) Plan(t berth.Template, tier berth.Tier, hasImage bool) []berth.Step {
	var steps []berth.Step
	for _, s := range t.Spec().Steps(hasImage) {
		r := c.cfg.Routes[s.Template]
		model := r.Free
		if tier == berth.TierPaid {
			model = r.Paid
		}
		steps = append(steps, berth.Step{
			Name: s.Name, Template: s.Template, Mode: r.Mode, Queue: berth.QueueFor(tier, r.Mode), Model: model,
		})
	}
	return steps
}

// TaskQueues returns every Temporal task queue that a plan can name, sorted.
func (c *Catalog) TaskQueues() []string {
	set := map[string]bool{}
	for _, r := range c.cfg.Routes {
		set[berth.TaskQueue(berth.QueueFor(berth.TierPaid, r.Mode), r.Paid)] = true
		set[berth.TaskQueue(berth.QueueFor(berth.TierFree, r.Mode), r.Free)] = true
	}
	return sortedKeys(set)
}

// Models lists the models by name.
func (c *Catalog) Models() []Model {
	var out []Model
	for _, name := range sortedKeys(c.cfg.Models) {
		m, _ := c.Model(name)
		out = append(out, m)
	}
	return out
}

// Model is the model of that name.
func (c *Catalog) Model(name string) (Model, bool) {
	m, ok := c.cfg.Models[name]
	if !ok {
		return Model{}, false
	}
	out := Model{
		Name: name, ID: m.ID, Provider: m.Provider, Cap: m.Cap, MaxOutputTokens: m.MaxOutputTokens,
		Timeouts: m.Timeouts, Price: m.Price,
	}
	if ep, err := c.endpoint(name); err == nil {
		out.ServedBy = ep.servedBy
		if ep.servedBy == LocalProvider {
			out.Price = Price{}
		}
	}
	return out, true
}

// Cap returns the maximum number of concurrent calls of a model, DefaultCap for a model that is not in the catalog.
func (c *Catalog) Cap(model string) int {
	if m, ok := c.cfg.Models[model]; ok {
		return m.Cap
	}
	return DefaultCap
}

// Served returns nil if this process can call a model, and otherwise an error with CodeProviderKey that names the missing
// setting.
func (c *Catalog) Served(model string) error {
	_, err := c.endpoint(model)
	return err
}

// KeySettings lists the settings that may hold API keys, sorted.
func (c *Catalog) KeySettings() []string { return c.cfg.KeySettings() }

// endpoint is the server that receives the calls of a model.
type endpoint struct {
	servedBy       string
	baseURL        string
	key            string
	keySetting     string
	modelID        string
	maxTokensField string
	jsonMode       bool
}

func (c *Catalog) endpoint(model string) (endpoint, error) {
	m, ok := c.cfg.Models[model]
	if !ok {
		return endpoint{}, fmt.Errorf("model %q is not in the catalog", model)
	}
	p := c.cfg.Providers[m.Provider]
	ep := endpoint{
		servedBy: m.Provider, baseURL: p.BaseURL, key: c.settings.Keys[p.KeySetting], keySetting: p.KeySetting,
		modelID: m.ID, maxTokensField: p.MaxTokensField, jsonMode: m.JSONMode == nil || *m.JSONMode,
	}
	if u := c.settings.BaseURLs[m.Provider]; u != "" {
		ep.baseURL = u
	}
	if ep.key != "" || p.KeySetting == "" || p.KeyOptional {
		return ep, nil
	}
	if c.settings.LocalURL == "" {
		return endpoint{}, &CallError{
			Code: berth.CodeProviderKey, Provider: m.Provider, Model: model,
			Message: fmt.Sprintf("there is no API key for %s: set %s, or BERTH_LOCAL_MODEL_URL to the local model server", m.Provider, p.KeySetting),
		}
	}
	return endpoint{
		servedBy: LocalProvider, baseURL: c.settings.LocalURL, modelID: model, maxTokensField: maxTokens, jsonMode: true,
	}, nil
}
