package litellm

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// provider is one of the routing file.
type provider struct {
	name           string
	BaseURL        string `yaml:"baseURL"`
	KeySetting     string `yaml:"keySetting,omitempty"`
	MaxTokensField string `yaml:"maxTokensField,omitempty"`
}

// same reports whether calls of both go to the same server with the same key.
func (p *provider) same(other provider) bool {
	other.name = p.name
	return *p == other
}

// model is one of the routing file.
type model struct {
	given     string // its name in the configuration
	name      string
	aliases   []string
	upstreams []*upstream
}

// upstream is one of a model, or the model itself if it has only one.
type upstream struct {
	Aliases         []string  `yaml:"aliases,omitempty"`
	Name            string    `yaml:"name,omitempty"`
	Provider        string    `yaml:"provider"`
	ID              string    `yaml:"id,omitempty"`
	Cap             any       `yaml:"cap"`
	RPM             int       `yaml:"rpm,omitempty"`
	TPM             int       `yaml:"tpm,omitempty"`
	Rank            int       `yaml:"rank,omitempty"`
	ContextTokens   int       `yaml:"contextTokens,omitempty"`
	MaxOutputTokens int       `yaml:"maxOutputTokens,omitempty"`
	Responses       bool      `yaml:"responses,omitempty"`
	Timeouts        *timeouts `yaml:"timeouts,omitempty"`
	Price           *price    `yaml:"price,omitempty"`
	Credits         *price    `yaml:"credits,omitempty"` // of a model

	order int // 0 without one
}

type timeouts struct {
	FirstByte string `yaml:"firstByte,omitempty"`
	Whole     string `yaml:"whole,omitempty"`
}

type price struct {
	Input       float64  `yaml:"input"`
	CachedInput *float64 `yaml:"cachedInput,omitempty"`
	Output      float64  `yaml:"output"`
}

// Names of a routing file.
var (
	modelName = upstreamName
	aliasName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)
	unnamed   = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

const (
	maxAliases = 50
	// cut is where a name that gets a number is cut off.
	cut = 56
)

// model returns the model of a name of the configuration.
func (c *converter) model(given string) *model {
	i := slices.IndexFunc(c.models, func(m *model) bool { return m.given == given })
	if i < 0 {
		i, c.models = len(c.models), append(c.models, &model{given: given})
	}
	return c.models[i]
}

// nameModels chooses names that a routing file may have. What clients call a model stays its name or is its alias, where that is possible.
func (c *converter) nameModels() {
	used := map[string]bool{}
	for _, m := range c.models {
		if modelName.MatchString(m.given) {
			m.name, used[m.given] = m.given, true
		}
	}
	for _, m := range c.models {
		if m.name != "" {
			continue
		}
		base := strings.Trim(unnamed.ReplaceAllString(m.given, "-"), "-._")
		base = base[:min(len(base), cut)]
		if base == "" {
			base = "model"
		}
		m.name = base
		for n := 2; used[m.name]; n++ {
			m.name = fmt.Sprintf("%s-%d", base, n)
		}
		used[m.name] = true
		if aliasName.MatchString(m.given) {
			m.aliases = append(m.aliases, m.given)
		} else {
			c.note(c.root.get("model_list"), "the model %q is %s in berth, which its clients have to name", m.given, m.name)
		}
	}
}

// aliases carries other names of models.
func (c *converter) aliases(of value) {
	taken := map[string]bool{}
	for _, m := range c.models {
		taken[m.name] = true
		for _, alias := range m.aliases {
			taken[alias] = true
		}
	}
	for _, f := range of.fields() {
		target := f.text()
		if target == "" {
			target = f.get("model").text()
		}
		i := slices.IndexFunc(c.models, func(m *model) bool { return m.given == target })
		switch {
		case i < 0:
			c.drop(f.value, "the model %q was not carried or does not exist", target)
		case taken[f.name]:
			c.drop(f.value, "%s is the name of a model or another alias", f.name)
		case !aliasName.MatchString(f.name):
			c.drop(f.value, "an alias has letters, digits and any of ._:/-")
		case len(c.models[i].aliases) == maxAliases:
			c.drop(f.value, "a model has at most %d aliases", maxAliases)
		default:
			taken[f.name] = true
			c.models[i].aliases = append(c.models[i].aliases, f.name)
			if f.get("hidden").isTrue() {
				c.drop(f.get("hidden"), "berth hides no alias")
			}
		}
	}
}

// write returns the routing file.
func (c *converter) write() ([]byte, error) {
	providers, models := mapping(), mapping()
	for _, p := range c.providers {
		if err := add(providers, p.name, p, yaml.FlowStyle); err != nil {
			return nil, err
		}
	}
	for _, m := range c.models {
		m.rank()
		m.nameUpstreams()
		if len(m.upstreams) == 1 {
			m.upstreams[0].Aliases, m.upstreams[0].Credits = m.aliases, m.credits()
			if err := add(models, m.name, m.upstreams[0], yaml.FlowStyle); err != nil {
				return nil, err
			}
			continue
		}
		several := mapping()
		if len(m.aliases) > 0 {
			if err := add(several, "aliases", m.aliases, yaml.FlowStyle); err != nil {
				return nil, err
			}
		}
		if credits := m.credits(); credits != nil {
			if err := add(several, "credits", credits, yaml.FlowStyle); err != nil {
				return nil, err
			}
		}
		if err := add(several, "upstreams", m.upstreams, 0); err != nil {
			return nil, err
		}
		for _, u := range several.Content[len(several.Content)-1].Content {
			u.Style = yaml.FlowStyle
		}
		if err := add(models, m.name, several, 0); err != nil {
			return nil, err
		}
	}
	root := mapping()
	root.Content = []*yaml.Node{scalar("providers"), providers, scalar("models"), models}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("write the routing file: %w", err)
	}
	return out.Bytes(), nil
}

// perDollar is how many credits a dollar is. Credits have thousandths.
const perDollar = 1000

// credits returns what users pay: the price of the most expensive upstream, nil if no upstream has a price. Budgets count credits.
func (m *model) credits() *price {
	var most *price
	for _, u := range m.upstreams {
		if u.Price == nil || *u.Price == (price{}) {
			continue
		}
		if most == nil {
			most = &price{}
		}
		inCredits := func(dollars float64) float64 { return min(math.Round(dollars*perDollar*1000)/1000, maxPrice) }
		cached := u.Price.Input
		if u.Price.CachedInput != nil {
			cached = *u.Price.CachedInput
		}
		most.Input, most.Output = max(most.Input, inCredits(u.Price.Input)), max(most.Output, inCredits(u.Price.Output))
		if most.CachedInput == nil {
			most.CachedInput = new(float64)
		}
		*most.CachedInput = max(*most.CachedInput, inCredits(cached))
	}
	if most != nil && *most.CachedInput == most.Input {
		most.CachedInput = nil
	}
	return most
}

// rank ranks the upstreams by their order. LiteLLM uses those without one last.
func (m *model) rank() {
	last := 0
	for _, u := range m.upstreams {
		last = max(last, u.order)
	}
	for _, u := range m.upstreams {
		if u.Rank = u.order; u.order == 0 && last > 0 {
			u.Rank = min(last+1, maxRank)
		}
		if u.Rank == 1 || len(m.upstreams) == 1 {
			u.Rank = 0 // the default
		}
	}
}

// nameUpstreams gives each of several upstreams a name of its own, and leaves out what is the default.
func (m *model) nameUpstreams() {
	used := map[string]bool{}
	for _, u := range m.upstreams {
		if u.ID == m.name {
			u.ID = ""
		}
		if len(m.upstreams) == 1 {
			u.Name = ""
			return
		}
		name := u.Name
		if name == "" {
			name = unnamed.ReplaceAllString(u.Provider, "-")
		}
		base := name[:min(len(name), cut)]
		for n := 2; used[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		used[name] = true
		if u.Name = name; name == u.Provider {
			u.Name = ""
		}
	}
}

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func scalar(text string) *yaml.Node {
	var n yaml.Node
	n.SetString(text)
	return &n
}

// add appends a field to a mapping.
func add(to *yaml.Node, name string, v any, style yaml.Style) error {
	n, ok := v.(*yaml.Node)
	if !ok {
		n = &yaml.Node{}
		if err := n.Encode(v); err != nil {
			return fmt.Errorf("write %s of the routing file: %w", name, err)
		}
		n.Style = style
	}
	to.Content = append(to.Content, scalar(name), n)
	return nil
}
