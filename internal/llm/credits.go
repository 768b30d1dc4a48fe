package llm

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"berth"
	"berth/internal/template"
)

// CreditPrices are what users pay for a million tokens of a model.
type CreditPrices struct {
	Input berth.Credits `yaml:"input"`
	// CachedInput is the price of input tokens that the provider had cached, Input when it is not set.
	CachedInput *berth.Credits `yaml:"cachedInput"`
	Output      berth.Credits  `yaml:"output"`
}

// million is how many tokens a price is for.
const million = 1_000_000

// Of returns what a call costs its user, rounded up to a thousandth.
func (p CreditPrices) Of(used berth.Usage) berth.Credits {
	cachedPrice := p.Input
	if p.CachedInput != nil {
		cachedPrice = *p.CachedInput
	}
	cached := min(max(used.CachedTokens, 0), used.InputTokens)
	sum := new(big.Int) // a hostile provider may report any number of tokens
	for _, part := range []struct {
		tokens int64
		price  berth.Credits
	}{{used.InputTokens - cached, p.Input}, {cached, cachedPrice}, {used.OutputTokens, p.Output}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(max(part.tokens, 0)), big.NewInt(int64(part.price))))
	}
	sum.Add(sum, big.NewInt(million-1)).Div(sum, big.NewInt(million))
	if !sum.IsInt64() {
		return berth.MaxCredits
	}
	return min(berth.Credits(sum.Int64()), berth.MaxCredits)
}

// most returns the prices with the higher of the two for input, for tokens of which it is not known whether they are cached.
func (p CreditPrices) most() CreditPrices {
	if p.CachedInput != nil {
		p.Input = max(p.Input, *p.CachedInput)
	}
	p.CachedInput = nil
	return p
}

// Reserve returns what is reserved for a metered task: what its steps cost if each answer is as long as it may be. texts are the values of
// its variables by name; images are not counted among them.
func (c *Catalog) Reserve(t *template.Template, steps []berth.Step, texts map[string]string) berth.Credits {
	sizes := map[string]int64{}
	for name, text := range texts {
		sizes[name] = int64(math.Ceil(tokens(text)))
	}
	var sum berth.Credits
	for _, s := range steps {
		m, _ := c.Model(s.Model)
		spec, _ := t.Step(string(s.Name))
		longest := m.maxOutput(spec.MaxOutputTokens)
		used := berth.Usage{InputTokens: promptTokens, OutputTokens: longest}
		for name, size := range sizes {
			if slices.Contains(spec.Reads, name) {
				used.InputTokens += size
			}
		}
		used.InputTokens += int64(len(spec.Images)) * tokensPerImage
		if spec.Into != "" {
			sizes[spec.Into] = longest
		}
		sum += m.Credits.most().Of(used)
	}
	return min(sum, berth.MaxCredits)
}

// ReserveCall returns what is reserved for a raw call: what it costs if each of its answers is as long as it may be.
func (c *Catalog) ReserveCall(call Call) berth.Credits {
	m, _ := c.Model(call.Model)
	used := berth.Usage{InputTokens: call.Raw.InputTokens}
	if call.Raw.Operation == OperationChat {
		used.OutputTokens = int64(max(call.Raw.Choices, 1)) * int64(call.Raw.bound(int(m.maxOutput(0))))
	}
	return min(m.Credits.most().Of(used), berth.MaxCredits)
}

// AssumedBounds returns a warning that names the models with credits whose answers the routing file does not bound; none if it bounds all.
func (c *Catalog) AssumedBounds() []string {
	var names []string
	for _, m := range c.Models() {
		if m.Credits != (CreditPrices{}) && slices.ContainsFunc(m.Upstreams, func(u Upstream) bool { return !u.config.bounded }) {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("models with credits and without maxOutputTokens: %s: their calls reserve answers of %d tokens and send that as max_tokens, which a provider with a lower limit refuses: "+
		"set maxOutputTokens in the routing file (BERTH_ROUTING_FILE)", strings.Join(names, ", "), DefaultMaxOutputTokens)}
}

// maxOutput returns the maximum number of tokens of an answer, of which a template may allow fewer.
func (m Model) maxOutput(allowed int) int64 {
	most := 0
	for _, u := range m.Upstreams {
		most = max(most, u.MaxOutputTokens)
	}
	if allowed > 0 {
		most = min(most, allowed)
	}
	return int64(most)
}
