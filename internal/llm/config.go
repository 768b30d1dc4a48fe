package llm

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"berth"
	"berth/internal/template"
	"berth/internal/userfile"
	"berth/internal/yamlfile"
)

//go:embed routing.yaml
var builtinRouting []byte

// Config is a routing file: providers, models, and what it changes of the models and prices that templates name.
type Config struct {
	Providers map[string]ProviderConfig `yaml:"providers"`
	Models    map[string]ModelConfig    `yaml:"models"`
	// Queues share the models by their weights. Without any, those of the built-in file.
	Queues map[berth.Queue]QueueConfig `yaml:"queues"`
	// Routes are those of templates (NAME), of single steps (NAME.STEP), and of all others (default, and vision for steps that show an
	// image).
	Routes map[string]Route `yaml:"routes"`
}

// The routes of steps that have none.
const (
	defaultRoute = "default"
	visionRoute  = "vision"
)

// QueueConfig is a queue of calls.
type QueueConfig struct {
	// Weight is the queue's share of a model that has not enough slots, 1 by default.
	Weight int `yaml:"weight"`
	// Tier and Mode are those of the calls that the queue takes, empty for all.
	Tier berth.Tier `yaml:"tier"`
	Mode berth.Mode `yaml:"mode"`
	// ServiceTier is the service_tier of the calls of OpenAI's protocol that the queue takes; it takes no others then.
	ServiceTier string `yaml:"serviceTier"`
	// MaxTasks is the maximum number of unfinished tasks, QUEUE_MAX_SIZE when it is 0.
	MaxTasks int `yaml:"maxTasks"`
}

// takes reports whether the queue takes such calls, and how exactly it names them.
func (q QueueConfig) takes(tier berth.Tier, mode berth.Mode) (exact int, ok bool) {
	if q.ServiceTier != "" {
		return 0, false
	}
	for _, field := range [][2]string{{string(q.Tier), string(tier)}, {string(q.Mode), string(mode)}} {
		if field[0] != "" && field[0] != field[1] {
			return 0, false
		}
		if field[0] != "" {
			exact++
		}
	}
	return exact, true
}

// ProviderConfig is one server of the OpenAI chat-completions protocol.
type ProviderConfig struct {
	BaseURL string `yaml:"baseURL"`
	// KeySetting names the setting that holds the API key, for instance DEEPSEEK_API_KEY. Empty for a provider without keys.
	KeySetting string `yaml:"keySetting"`
	// KeyOptional allows calls without a key when none is set.
	KeyOptional bool `yaml:"keyOptional"`
	// Cap is the maximum number of concurrent calls of all its models together; 0 for no limit.
	Cap int `yaml:"cap"`
	// MaxTokensField is the provider's name for the bound of the answer: max_tokens or max_completion_tokens.
	MaxTokensField string `yaml:"maxTokensField"`
	// StreamOptions: the server accepts stream_options, with which it reports the usage of a stream. True by default; a process learns
	// from a refusal that it does not.
	StreamOptions *bool `yaml:"streamOptions"`
}

// Route has the models of steps, by tier.
type Route struct {
	Paid string `yaml:"paid"`
	Free string `yaml:"free"`
	// Credits is the price of a task of the template in the paid tier, that of the template when it is not set. The free tier costs
	// nothing.
	Credits *template.Price `yaml:"credits"`
}

func (r Route) model(tier berth.Tier) string {
	if tier == berth.TierPaid {
		return r.Paid
	}
	return r.Free
}

// Values of ProviderConfig.MaxTokensField.
const (
	maxTokens           = "max_tokens"
	maxCompletionTokens = "max_completion_tokens"
)

// LoadConfig reads a routing file, the built-in one for an empty path. Its error names the path and line of each
// invalid value.
func LoadConfig(path string) (Config, error) {
	if path == "" {
		return parseConfig("routing.yaml", builtinRouting)
	}
	b, err := userfile.Read(path, userfile.MaxSettings)
	if err != nil {
		return Config{}, fmt.Errorf("read routing: %w", err)
	}
	return parseConfig(path, b)
}

func parseConfig(name string, src []byte) (Config, error) {
	root, err := yamlfile.Parse(src)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return decodeConfig(name, root, src)
}

// decodeConfig reads the configuration from the root of a document, of which src is the text.
func decodeConfig(name string, root *yaml.Node, src []byte) (Config, error) {
	file, err := checkRoutingFile(name, root, src)
	if err != nil {
		return Config{}, err
	}
	var c Config
	if err := file.root.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, yamlfile.Unreadable(src, err))
	}
	c.setDefaults()
	c.check(file)
	return c, file.err()
}

// defaultQueues returns the queues of a file that has none.
func defaultQueues() (map[berth.Queue]QueueConfig, error) {
	builtin, err := LoadConfig("")
	return builtin.Queues, err
}

func (c Config) setDefaults() {
	for name, q := range c.Queues {
		q.Weight = cmp.Or(q.Weight, 1)
		c.Queues[name] = q
	}
	for name, p := range c.Providers {
		p.MaxTokensField = cmp.Or(p.MaxTokensField, maxTokens)
		c.Providers[name] = p
	}
}

// check reports what the schema cannot: names without a definition, and values
// of their own grammar.
func (c Config) check(file *routingFile) {
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		if err := checkBaseURL(c.Providers[name].BaseURL); err != nil {
			file.invalid([]string{"providers", name, "baseURL"}, "%s", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		c.checkModel(file, name, c.Models[name])
	}
	c.checkAliases(file)
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		c.checkRoute(file, name, c.Routes[name])
	}
	if len(c.Queues) > 0 {
		c.checkQueues(file)
	}
}

// checkQueues verifies that calls of each tier and mode have exactly one queue, and those of a service tier at most one.
func (c Config) checkQueues(file *routingFile) {
	byTier := map[string]berth.Queue{}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		q := c.Queues[name]
		if q.ServiceTier == "" {
			continue
		}
		if q.Tier != "" || q.Mode != "" {
			file.invalid([]string{"queues", string(name), "serviceTier"}, "a queue with serviceTier has neither tier nor mode: it takes calls of OpenAI's protocol only")
		}
		if other, ok := byTier[q.ServiceTier]; ok {
			file.invalid([]string{"queues", string(name), "serviceTier"}, "%s has the queue %s already", q.ServiceTier, other)
		}
		byTier[q.ServiceTier] = name
	}
	for _, tier := range tiers {
		for _, mode := range modes {
			switch found := c.queuesFor(tier, mode); {
			case len(found) == 0:
				file.invalid([]string{"queues"}, "no queue takes calls of tier %s and mode %s: add one with both, with one of them, or with neither", tier, mode)
			case len(found) > 1:
				file.invalid([]string{"queues", string(found[1])}, "takes calls of tier %s and mode %s as %s does: change tier or mode of one of them", tier, mode, found[0])
			}
		}
	}
}

// queuesFor returns the queues that take such calls and name them most exactly, by name.
func (c Config) queuesFor(tier berth.Tier, mode berth.Mode) (found []berth.Queue) {
	best := -1
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		exact, ok := c.Queues[name].takes(tier, mode)
		if !ok || exact < best {
			continue
		}
		if exact > best {
			best, found = exact, nil
		}
		found = append(found, name)
	}
	return found
}

func (c Config) checkRoute(file *routingFile, name string, r Route) {
	if template := !strings.Contains(name, ".") && name != defaultRoute && name != visionRoute; r.Credits != nil && !template {
		file.invalid([]string{"routes", name, "credits"}, "only a template has a price")
	}
	named := c.names()
	for _, tier := range []struct{ name, model string }{{"paid", r.Paid}, {"free", r.Free}} {
		if _, ok := named[tier.model]; !ok && tier.model != "" {
			file.invalid([]string{"routes", name, tier.name}, "no model %q under models", tier.model)
		}
	}
}
