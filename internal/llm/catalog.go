package llm

import (
	"cmp"
	"fmt"
	"maps"
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

// Catalog resolves templates to models and models to addresses. It is immutable and safe for concurrent use.
type Catalog struct {
	cfg      Config
	settings Settings
	models   map[string]Model
	names    map[string]string // of models, by names and aliases
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
	c.models, c.names = map[string]Model{}, cfg.names()
	for name, m := range cfg.Models {
		c.models[name] = c.model(name, m)
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

// Price returns what a task of a template costs, nothing in the free tier.
func (c *Catalog) Price(t *template.Template, tier berth.Tier) template.Price {
	if tier != berth.TierPaid {
		return template.Price{}
	}
	if price := c.cfg.Routes[string(t.Name)].Credits; price != nil {
		return *price
	}
	return t.Price
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
