// Package litellm converts the configuration of a LiteLLM proxy into a routing file.
//
// Its format is documented at https://docs.litellm.ai/docs/proxy/configs.
package litellm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"berth/internal/editdistance"
	"berth/internal/yamlfile"
)

// Note is a remark about a value of a configuration. It has no secret.
type Note struct {
	Line int
	Path string // such as model_list[2].litellm_params.weight
	Text string
}

// Result is a converted configuration.
type Result struct {
	Routing []byte // the routing file
	// Models and Upstreams are the numbers of those in the file, Keys the names of the settings with the API keys that it needs.
	Models, Upstreams int
	Keys              []string
	// Notes name what was not carried, and what has to be looked at, in the order of the lines.
	Notes []Note
}

// Convert converts a configuration. Its error names the line of a text that is not YAML; all else that it cannot read is noted.
func Convert(src []byte) (Result, error) {
	root, err := yamlfile.Parse(src)
	if err != nil {
		return Result{}, err
	}
	c := &converter{
		root: of(root, ""), env: map[string]string{}, read: map[string]bool{}, credentials: map[string]value{}, literals: map[string]string{}, settings: map[string]bool{},
	}
	list := c.root.get("model_list")
	if err := c.check(list); err != nil {
		return Result{}, err
	}
	c.repeated(root, "")
	c.prepare()
	for _, v := range list.items() {
		c.entry(v)
	}
	if len(c.models) == 0 {
		c.note(list, "no model was carried")
	}
	if c.uncapped > 0 {
		c.note(list, "upstreams without max_parallel_requests (%d): berth learns how many calls they accept at a time, cap: auto", c.uncapped)
	}
	if c.unbounded > 0 {
		c.note(list, "upstreams without max_output_tokens (%d): their answers have at most %d tokens; set maxOutputTokens for longer ones", c.unbounded, defaultOutput)
	}
	if c.unpriced > 0 {
		c.note(list, "upstreams without a price (%d), which LiteLLM has in a table of its own: set price to see costs, and credits of the model so that budgets limit them", c.unpriced)
	}
	if c.priced > 0 {
		c.note(list, "budgets count credits: a dollar is written as %d credits, by the most expensive upstream of a model", perDollar)
	}
	c.nameModels()
	c.aliases(c.root.get("router_settings").get("model_group_alias"))
	c.sections()
	slices.SortStableFunc(c.notes, func(a, b Note) int { return cmp.Compare(a.Line, b.Line) })
	routing, err := c.write()
	out := Result{Routing: routing, Models: len(c.models), Notes: c.notes}
	for _, m := range c.models {
		out.Upstreams += len(m.upstreams)
	}
	for _, p := range c.providers {
		if p.KeySetting != "" && !slices.Contains(out.Keys, p.KeySetting) {
			out.Keys = append(out.Keys, p.KeySetting)
		}
	}
	slices.Sort(out.Keys)
	return out, err
}

// check returns the error of a text that is not the configuration of a proxy.
func (c *converter) check(list value) error {
	const wanted = "model_list, a list of models with model_name and litellm_params, as the config.yaml of LiteLLM's proxy has it"
	switch {
	case c.root.node.Kind != yaml.MappingNode:
		return errors.New("must have " + wanted)
	case list.node != nil && !list.empty() && list.node.Kind != yaml.SequenceNode:
		return fmt.Errorf("line %d: model_list is not a list: write %s", list.line, wanted)
	case list.node != nil:
		return nil
	}
	for _, f := range c.root.fields() {
		if editdistance.Nearest(f.name, sectionNames()) == "model_list" {
			return fmt.Errorf("line %d: %s is not a field of LiteLLM: did you mean model_list?", f.line, yamlfile.Safe(f.name))
		}
	}
	if include := c.root.get("include"); !include.empty() {
		return fmt.Errorf("line %d: the models are in files that include names, and these are not read: import each of them", include.line)
	}
	return errors.New("must have " + wanted)
}

// repeated notes the names that a mapping has more than once. It does not follow anchors: each node is visited once.
func (c *converter) repeated(n *yaml.Node, path string) {
	first := map[string]int{}
	for i, child := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			c.repeated(child, fmt.Sprintf("%s[%d]", path, i))
		case n.Kind == yaml.MappingNode && i%2 == 1:
			key := n.Content[i-1]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			if line, again := first[key.Value]; !again {
				first[key.Value] = key.Line
			} else if key.Tag != "!!merge" {
				c.note(value{path: at, line: key.Line}, "is written twice, first in line %d: the last one is in effect", line)
			}
			c.repeated(child, at)
		}
	}
}

type converter struct {
	root        value
	env         map[string]string // environment_variables
	read        map[string]bool   // of them
	credentials map[string]value  // credential_values
	defaults    defaults
	notes       []Note
	providers   []*provider
	models      []*model
	literals    map[string]string // names of settings, by the secrets for which they were chosen
	settings    map[string]bool   // names of settings that the configuration uses
	// These count upstreams.
	uncapped, priced, unpriced, unbounded int
}

// defaults are limits of all entries.
type defaults struct{ timeout, streamTimeout, parallel value }

func (c *converter) note(at value, format string, args ...any) {
	c.notes = append(c.notes, Note{at.line, yamlfile.Safe(at.path), yamlfile.Safe(fmt.Sprintf(format, args...))})
}

// drop notes that a value is not carried.
func (c *converter) drop(at value, format string, args ...any) {
	c.note(at, "not carried: "+format, args...)
}

// dropAll notes all fields but the named ones, with the reasons of the tables.
func (c *converter) dropAll(of value, carried []string, tables ...reasons) {
	for _, f := range of.fields() {
		if !slices.Contains(carried, f.name) && !f.empty() {
			c.drop(f.value, "%s", why(f.name, tables...))
		}
	}
}

// prepare reads what entries refer to.
func (c *converter) prepare() {
	for _, f := range c.root.get("environment_variables").fields() {
		c.env[f.name] = f.text()
	}
	for _, v := range c.root.get("credential_list").items() {
		values := v.get("credential_values")
		if name := v.get("credential_name").text(); name != "" {
			c.credentials[name] = values
		}
		if name, ok := variable(values.get("api_key").text()); ok {
			c.settings[settingOf(name)] = true
		}
	}
	for _, v := range c.root.get("model_list").items() {
		params := v.get("litellm_params")
		name, ok := variable(params.get("api_key").text())
		if params.get("api_key").empty() {
			provider, _ := split(params.get("model").text(), params.get("custom_llm_provider").text())
			name = specs[provider].key
			ok = name != ""
		}
		if ok {
			c.settings[settingOf(name)] = true
		}
	}
	router, lite := c.root.get("router_settings"), c.root.get("litellm_settings")
	c.defaults = defaults{timeout: router.get("timeout"), streamTimeout: router.get("stream_timeout"), parallel: router.get("default_max_parallel_requests")}
	if c.defaults.timeout.empty() {
		c.defaults.timeout = lite.get("request_timeout")
	}
}

// resolve returns a text, of an environment variable that the configuration sets the value. If it does not set it, unknown is its name.
func (c *converter) resolve(v value) (text, unknown string) {
	name, ok := variable(v.text())
	if !ok {
		return v.text(), ""
	}
	if set := c.env[name]; set != "" {
		c.read[name] = true
		return set, ""
	}
	return "", name
}

// number returns a number between bounds, and 0 if there is none. Larger ones are lowered.
func (c *converter) number(v value, low, high float64) float64 {
	if v.empty() {
		return 0
	}
	text, unknown := c.resolve(v)
	n, ok := v.number()
	if v.text() != text && unknown == "" {
		n, ok = value{node: &yaml.Node{Kind: yaml.ScalarNode, Value: text}}.number()
	}
	switch {
	case unknown != "":
		c.drop(v, "is the environment variable %s, whose value is not in this file: write the number", unknown)
	case !ok:
		c.drop(v, "is not a number")
	case n < low:
		c.drop(v, "must be at least %v in berth", low)
	case n > high:
		c.note(v, "lowered to %.0f, the maximum of berth", high)
		return high
	default:
		return n
	}
	return 0
}

// whole is number without decimals.
func (c *converter) whole(v value, high float64) int { return int(c.number(v, 1, high)) }

// sections notes what is not carried of all but the models.
func (c *converter) sections() {
	for _, f := range c.root.fields() {
		switch f.name {
		case "model_list":
		case "router_settings":
			c.dropAll(f.value, []string{"model_group_alias", "timeout", "stream_timeout", "default_max_parallel_requests"}, routerReasons)
		case "litellm_settings":
			c.dropAll(f.value, []string{"request_timeout"}, litellmReasons, routerReasons)
		case "general_settings":
			c.dropAll(f.value, nil, generalReasons)
		case "environment_variables":
			c.variables(f.value)
		case "credential_list":
			for _, v := range f.items() {
				c.dropAll(v.get("credential_values"), []string{"api_key", "api_base", "base_url"}, paramReasons)
			}
		default:
			meant := editdistance.Nearest(f.name, sectionNames())
			switch {
			case f.empty():
			case why(f.name, sectionReasons) == noCounterpart && meant != "":
				c.drop(f.value, "did you mean %s?", meant)
			default:
				c.drop(f.value, "%s", why(f.name, sectionReasons))
			}
		}
	}
}

// variables notes what berth reads instead of the environment variables.
func (c *converter) variables(of value) {
	for _, f := range of.fields() {
		isKey := slices.ContainsFunc(c.providers, func(p *provider) bool { return p.KeySetting == strings.ToUpper(f.name) })
		switch {
		case isKey:
			c.note(f.value, "secrets are not carried: set %s in BERTH_PROVIDER_KEYS", strings.ToUpper(f.name))
		case !c.read[f.name]:
			c.drop(f.value, "berth has settings of its own: docs/settings.md")
		}
	}
}
