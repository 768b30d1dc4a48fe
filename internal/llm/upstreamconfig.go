package llm

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// ModelConfig is one model. Its own fields are the defaults of its upstreams.
type ModelConfig struct {
	UpstreamConfig `yaml:",inline"`
	// Aliases are other names by which the model can be asked for.
	Aliases []string `yaml:"aliases"`
	// Upstreams serve the model. Without any, it has one, which the model's own fields describe.
	Upstreams []UpstreamConfig `yaml:"upstreams"`
	// Credits are what users of metered templates pay, whichever upstream serves them.
	Credits CreditPrices `yaml:"credits"`
}

// UpstreamConfig is one server, or one key of it, that serves a model.
type UpstreamConfig struct {
	// Name is unique among the upstreams of the model, by default the name of the provider, with - in place of spaces and other signs.
	Name     string `yaml:"name"`
	Provider string `yaml:"provider"`
	// ID is the provider's name for the model, by default the model's name in the file.
	ID string `yaml:"id"`
	// KeySetting names the setting with the upstream's own API key, that of the provider by default.
	KeySetting string `yaml:"keySetting"`
	Cap        Cap    `yaml:"cap"`
	// Min and Max bound a cap that is learned.
	Min int `yaml:"min"`
	Max int `yaml:"max"`
	// Rank orders the upstreams: one of a higher rank number is used only if those of lower ones are full or paused. 1 by default.
	Rank int `yaml:"rank"`
	// ContextTokens is the maximum size of prompt and answer together; 0 if it is unknown.
	ContextTokens int `yaml:"contextTokens"`
	// RPM and TPM are the maximum numbers of calls and of tokens per minute; 0 for no limit, nil for that of the model.
	RPM             *int     `yaml:"rpm"`
	TPM             *int     `yaml:"tpm"`
	MaxOutputTokens int      `yaml:"maxOutputTokens"`
	Timeouts        Timeouts `yaml:"timeouts"`
	// Price is nil for that of the model; that of a model without one is zero.
	Price *Price `yaml:"price"`
	// JSONMode: it accepts response_format json_object. True by default.
	JSONMode *bool `yaml:"jsonMode"`
	// Responses: it speaks the responses API, too. False by default.
	Responses *bool `yaml:"responses"`
	// Extra are the names of further fields of requests that the upstream accepts.
	Extra []string `yaml:"extra"`

	bounded bool // the file has maxOutputTokens
}

// Cap is the maximum number of concurrent calls over all processes: a number, or learned from the provider's answers.
type Cap struct {
	Calls int
	Auto  bool
}

// UnmarshalYAML reads a number, or auto.
func (c *Cap) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "auto" {
		*c = Cap{Auto: true}
		return nil
	}
	return n.Decode(&c.Calls) //nolint:wrapcheck // has the line
}

// Timeouts bound how long a provider may send nothing: before the first byte of an answer, and between two reads of it. Whole replaces FirstByte
// if the answer is not streamed, because nothing of such an answer comes before all of it was made.
type Timeouts struct {
	FirstByte time.Duration `yaml:"firstByte"`
	Idle      time.Duration `yaml:"idle"`
	Whole     time.Duration `yaml:"whole"`
}

// Price is in US dollars per million tokens; zero for a free model.
type Price struct {
	Input float64 `yaml:"input"`
	// CachedInput is the price of input tokens that the provider had cached, Input when it is not set.
	CachedInput *float64 `yaml:"cachedInput"`
	Output      float64  `yaml:"output"`
}

// Defaults of a routing file.
const (
	DefaultCap             = 5
	DefaultMin             = 1  // of a cap that is learned
	DefaultMax             = 64 // likewise
	DefaultRank            = 1
	DefaultMaxOutputTokens = 8192
	DefaultFirstByte       = 60 * time.Second
	DefaultIdle            = 60 * time.Second
	DefaultWhole           = 10 * time.Minute // as long as OpenAI's clients wait
)

const maxTimeout = time.Hour

// unnamed matches what the names of providers may have and those of upstreams may not.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// complete returns the upstreams of the model of that name with all their defaults, as the file lists them.
func (m ModelConfig) complete(name string) []UpstreamConfig {
	upstreams := slices.Clone(m.Upstreams)
	if len(upstreams) == 0 {
		upstreams = []UpstreamConfig{{}}
	}
	for i, u := range upstreams {
		u = u.or(m.UpstreamConfig)
		u.Name, u.ID = cmp.Or(u.Name, unnamed.ReplaceAllString(u.Provider, "-")), cmp.Or(u.ID, name)
		u.Cap, u.Rank = cmp.Or(u.Cap, Cap{Calls: DefaultCap}), cmp.Or(u.Rank, DefaultRank)
		u.bounded = u.MaxOutputTokens > 0
		u.MaxOutputTokens = cmp.Or(u.MaxOutputTokens, DefaultMaxOutputTokens)
		u.Timeouts.FirstByte = cmp.Or(u.Timeouts.FirstByte, DefaultFirstByte)
		u.Timeouts.Idle = cmp.Or(u.Timeouts.Idle, DefaultIdle)
		u.Timeouts.Whole = cmp.Or(u.Timeouts.Whole, DefaultWhole)
		u.RPM, u.TPM = cmp.Or(u.RPM, new(int)), cmp.Or(u.TPM, new(int))
		if u.Price == nil {
			u.Price = &Price{}
		}
		if u.Cap.Auto {
			u.Min = cmp.Or(u.Min, DefaultMin)
			u.Max = cmp.Or(u.Max, max(DefaultMax, u.Min))
		} else {
			u.Min, u.Max = 0, 0
		}
		upstreams[i] = u
	}
	return upstreams
}

// or returns the upstream with the values of the model where it has none.
func (u UpstreamConfig) or(m UpstreamConfig) UpstreamConfig {
	u.Provider, u.ID, u.KeySetting = cmp.Or(u.Provider, m.Provider), cmp.Or(u.ID, m.ID), cmp.Or(u.KeySetting, m.KeySetting)
	u.Cap, u.Min, u.Max, u.Rank = cmp.Or(u.Cap, m.Cap), cmp.Or(u.Min, m.Min), cmp.Or(u.Max, m.Max), cmp.Or(u.Rank, m.Rank)
	u.RPM, u.TPM = cmp.Or(u.RPM, m.RPM), cmp.Or(u.TPM, m.TPM)
	u.ContextTokens, u.MaxOutputTokens = cmp.Or(u.ContextTokens, m.ContextTokens), cmp.Or(u.MaxOutputTokens, m.MaxOutputTokens)
	u.Timeouts.FirstByte = cmp.Or(u.Timeouts.FirstByte, m.Timeouts.FirstByte)
	u.Timeouts.Idle = cmp.Or(u.Timeouts.Idle, m.Timeouts.Idle)
	u.Timeouts.Whole = cmp.Or(u.Timeouts.Whole, m.Timeouts.Whole)
	u.Price, u.JSONMode, u.Responses = cmp.Or(u.Price, m.Price), cmp.Or(u.JSONMode, m.JSONMode), cmp.Or(u.Responses, m.Responses)
	if u.Extra == nil {
		u.Extra = m.Extra
	}
	return u
}

// checkModel reports what the schema cannot find in a model.
func (c Config) checkModel(file *routingFile, name string, m ModelConfig) {
	path := []string{"models", name}
	learned, names := false, map[string]bool{}
	for i, u := range m.complete(name) {
		at := path
		if len(m.Upstreams) > 0 {
			at = append(slices.Clip(path), "upstreams", strconv.Itoa(i))
			file.checkBounds(at, u.Cap)
		}
		learned = learned || u.Cap.Auto
		c.checkUpstream(file, at, u)
		if names[u.Name] && u.Provider != "" {
			file.invalid(at, "the model has another upstream %s: give this one a name of its own", u.Name)
		}
		names[u.Name] = true
	}
	file.checkBounds(path, Cap{Auto: learned})
}

// checkBounds reports bounds of a cap that is not learned where they are written.
func (f *routingFile) checkBounds(at []string, of Cap) {
	for _, field := range []string{"min", "max"} {
		if path := append(slices.Clip(at), field); !of.Auto && f.has(path) {
			f.invalid(path, "only a cap that is auto has bounds")
		}
	}
}

func (c Config) checkUpstream(file *routingFile, at []string, u UpstreamConfig) {
	invalid := func(field, format string, args ...any) { file.invalid(append(slices.Clip(at), field), format, args...) }
	if _, ok := c.Providers[u.Provider]; u.Provider == "" {
		file.invalid(at, "missing property 'provider'")
	} else if !ok {
		invalid("provider", "no provider %q under providers", u.Provider)
	}
	if u.Min > u.Max {
		invalid("min", "must be at most max, %d", u.Max)
	}
	if u.ContextTokens > 0 && u.ContextTokens <= u.MaxOutputTokens {
		invalid("contextTokens", "must be more than maxOutputTokens, %d", u.MaxOutputTokens)
	}
	for _, t := range []struct {
		field string
		time.Duration
	}{{"firstByte", u.Timeouts.FirstByte}, {"idle", u.Timeouts.Idle}, {"whole", u.Timeouts.Whole}} {
		if t.Duration <= 0 || t.Duration > maxTimeout {
			file.invalid(append(slices.Clip(at), "timeouts", t.field), "must be more than 0 and at most %s", maxTimeout)
		}
	}
}

// checkAliases reports names that more than one model has.
func (c Config) checkAliases(file *routingFile) {
	used := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		for i, alias := range c.Models[name].Aliases {
			at := []string{"models", name, "aliases", strconv.Itoa(i)}
			if _, ok := c.Models[alias]; ok {
				file.invalid(at, "%s is the name of a model", alias)
			} else if other, ok := used[alias]; ok {
				file.invalid(at, "%s is an alias of %s already", alias, other)
			}
			used[alias] = name
		}
	}
}

// names returns the names of the models by their names and aliases.
func (c Config) names() map[string]string {
	names := map[string]string{}
	for name, m := range c.Models {
		for _, alias := range m.Aliases {
			names[alias] = name
		}
	}
	for name := range c.Models {
		names[name] = name
	}
	return names
}
