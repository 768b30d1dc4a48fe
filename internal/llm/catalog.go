package llm

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"berth"
	"berth/internal/template"
)

// LocalProvider is the provider name of answers of the local model simulator. Users see it.
const LocalProvider = "local simulator"

// Settings holds what a deployment adds to a routing file. It is never logged.
type Settings struct {
	// Keys holds API keys by the name of their setting, for instance DEEPSEEK_API_KEY.
	Keys map[string]string
	// KeyFiles names files with one key each, by the name of the key's setting, and KeysFile a file with one `NAME=key` per line,
	// which precedes all others. Files are read for each call.
	// KeyList is the text of such a file, whose lines may also end with a semicolon.
	KeyFiles map[string]string
	KeysFile string
	KeyList  string
	// BaseURLs replaces the address of a provider, by the provider's name.
	BaseURLs map[string]string
	// LocalURL is the base URL of the local model simulator, which serves the models of providers without a key.
	// Without it, calls of such models fail with berth.CodeProviderKey.
	LocalURL string
}

// Model is one model as this deployment can call it.
type Model struct {
	Name            string
	ID              string
	Provider        string
	Cap             int
	RPM, TPM        int
	ProviderCap     int
	MaxOutputTokens int
	Timeouts        Timeouts
	Price           Price
	// ServedBy is the provider, LocalProvider, or "" when a key is missing.
	ServedBy string
}

// CostMicros returns the cost of a call in millionths of a US dollar.
func (m Model) CostMicros(u berth.Usage) int64 {
	cachedPrice := m.Price.Input
	if m.Price.CachedInput != nil {
		cachedPrice = *m.Price.CachedInput
	}
	cached := min(max(u.CachedTokens, 0), u.InputTokens)
	return int64(math.Round(float64(u.InputTokens-cached)*m.Price.Input + float64(cached)*cachedPrice + float64(u.OutputTokens)*m.Price.Output))
}

// Catalog resolves templates to models and models to addresses. It is immutable and safe for concurrent use.
type Catalog struct {
	cfg      Config
	settings Settings
	queues   map[call]berth.Queue
	weights  map[berth.Queue]int
}

// call is what decides the queue of a call.
type call struct {
	tier berth.Tier
	mode berth.Mode
}

// LoadCatalog returns the catalog of a routing file, the built-in one for an empty path, without keys: it can plan calls
// but not make them.
func LoadCatalog(path string) (*Catalog, error) {
	cfg, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	return NewCatalog(cfg, Settings{})
}

// NewCatalog combines a routing file with the settings of a deployment. Its error names the invalid setting.
func NewCatalog(cfg Config, s Settings) (*Catalog, error) {
	c := &Catalog{cfg: cfg, settings: Settings{
		Keys: s.Keys, KeyFiles: s.KeyFiles, KeysFile: s.KeysFile, KeyList: s.KeyList, BaseURLs: map[string]string{}, LocalURL: s.LocalURL,
	}}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Queues) == 0 {
		queues, err := defaultQueues()
		if err != nil {
			return nil, err
		}
		c.cfg.Queues = queues
	}
	c.queues, c.weights = map[call]berth.Queue{}, map[berth.Queue]int{}
	for _, tier := range tiers {
		for _, mode := range modes {
			c.queues[call{tier, mode}] = c.cfg.queuesFor(tier, mode)[0]
		}
	}
	for name, q := range c.cfg.Queues {
		c.weights[name] = q.Weight
	}
	for _, name := range slices.Sorted(maps.Keys(s.BaseURLs)) {
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
			return nil, fmt.Errorf("BERTH_LOCAL_MODEL_URL: %w", err)
		}
	}
	return c, nil
}

// Plan returns the model calls of a task with these variables, with queue and model fixed by tier. Its error has berth.CodeUnavailable if
// the routing file has no model for a step.
func (c *Catalog) Plan(t *template.Template, tier berth.Tier, given map[string]berth.VariableKind) ([]berth.Step, error) {
	var steps []berth.Step
	for _, s := range t.Plan(given) {
		model, _, err := c.modelOf(t.Name, s, tier)
		if err != nil {
			return nil, err
		}
		steps = append(steps, berth.Step{
			Name: berth.StepName(s.ID), Mode: s.Mode, Queue: c.queueFor(tier, s.Mode), Model: model, Status: s.Status, Timeout: time.Duration(s.Timeout),
		})
	}
	return steps, nil
}

// Price returns what a task of a template costs in credits, 0 in the free tier.
func (c *Catalog) Price(t *template.Template, tier berth.Tier) int64 {
	if tier != berth.TierPaid {
		return 0
	}
	if credits := c.cfg.Routes[string(t.Name)].Credits; credits != nil {
		return *credits
	}
	return t.Credits
}

// Use is a queue that calls a model.
type Use struct {
	Queue berth.Queue
	Model string
}

// Uses returns which queues of which models the steps of templates use.
func (c *Catalog) Uses(templates []*template.Template) map[Use]bool {
	set := map[Use]bool{}
	for _, t := range templates {
		for _, r := range c.Routing(t) {
			if r.Model != "" {
				set[Use{r.Queue, r.Model}] = true
			}
		}
	}
	return set
}

// UsedModels returns the models that the steps of templates use, sorted.
func (c *Catalog) UsedModels(templates []*template.Template) []string {
	set := map[string]bool{}
	for use := range c.Uses(templates) {
		set[use.Model] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// queueFor returns the queue of calls of a tier and mode.
func (c *Catalog) queueFor(tier berth.Tier, mode berth.Mode) berth.Queue {
	return c.queues[call{tier, mode}]
}

// Queues returns the names of the queues, from the highest weight to the lowest.
func (c *Catalog) Queues() []berth.Queue {
	return slices.SortedFunc(maps.Keys(c.cfg.Queues), func(a, b berth.Queue) int {
		return cmp.Or(cmp.Compare(c.cfg.Queues[b].Weight, c.cfg.Queues[a].Weight), cmp.Compare(a, b))
	})
}

// QueueWeights returns the weights of the queues, which the caller must not change.
func (c *Catalog) QueueWeights() map[berth.Queue]int { return c.weights }

// MaxTasks returns the maximum number of unfinished tasks of a queue, 0 if the routing file states none.
func (c *Catalog) MaxTasks(queue berth.Queue) int { return c.cfg.Queues[queue].MaxTasks }

// Models returns the models, sorted by name.
func (c *Catalog) Models() []Model {
	var out []Model
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Models)) {
		m, _ := c.Model(name)
		out = append(out, m)
	}
	return out
}

// Model returns the model of that name.
func (c *Catalog) Model(name string) (Model, bool) {
	m, ok := c.cfg.Models[name]
	if !ok {
		return Model{}, false
	}
	out := Model{
		Name: name, ID: m.ID, Provider: m.Provider, Cap: m.Cap, RPM: m.RPM, TPM: m.TPM,
		ProviderCap: c.cfg.Providers[m.Provider].Cap, MaxOutputTokens: m.MaxOutputTokens,
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

// Cap returns the maximum number of concurrent calls of a model, DefaultCap for an unknown model.
func (c *Catalog) Cap(model string) int {
	if m, ok := c.cfg.Models[model]; ok {
		return m.Cap
	}
	return DefaultCap
}

// Served returns an error with CodeProviderKey that names the missing setting when this process cannot call the model.
func (c *Catalog) Served(model string) error {
	_, err := c.endpoint(model)
	return err
}

// KeySetting returns the name of the setting with the API key that calls of a model need, empty if they need none.
func (c *Catalog) KeySetting(model string) string {
	p := c.cfg.Providers[c.cfg.Models[model].Provider]
	if p.KeyOptional {
		return ""
	}
	return p.KeySetting
}

// endpoint is the server that calls of a model are sent to.
type endpoint struct {
	servedBy       string
	baseURL        string
	key            string
	keySetting     string
	modelID        string
	maxTokensField string
	// unwanted are the optional fields that the routing file excludes.
	unwanted fields
}

func (c *Catalog) endpoint(model string) (endpoint, error) {
	m, ok := c.cfg.Models[model]
	if !ok {
		return endpoint{}, fmt.Errorf("model %q is not in the catalog", model)
	}
	p := c.cfg.Providers[m.Provider]
	key, setting, err := c.settings.key(p.KeySetting)
	if err != nil {
		return endpoint{}, &CallError{
			Code: berth.CodeProviderUnavailable, Retryable: true, Provider: m.Provider, Model: model,
			Message: fmt.Sprintf("the API key for %s cannot be read: check %s", m.Provider, setting), Err: err,
		}
	}
	ep := endpoint{
		servedBy: m.Provider, baseURL: p.BaseURL, key: key, keySetting: setting,
		modelID: m.ID, maxTokensField: p.MaxTokensField,
	}
	if m.JSONMode != nil && !*m.JSONMode {
		ep.unwanted |= fieldResponseFormat
	}
	if p.StreamOptions != nil && !*p.StreamOptions {
		ep.unwanted |= fieldStreamOptions
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
			Message: fmt.Sprintf("no API key for %s: set %s, or set BERTH_LOCAL_MODEL_URL to use the local model simulator", m.Provider, p.KeySetting),
		}
	}
	return endpoint{
		servedBy: LocalProvider, baseURL: c.settings.LocalURL, modelID: model, maxTokensField: maxTokens,
	}, nil
}
