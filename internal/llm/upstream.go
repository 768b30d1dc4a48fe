package llm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"berth"
	"berth/lua"
)

// Model is one model. It is shared: callers must not change its lists.
type Model struct {
	Name    string
	Aliases []string
	// Credits are what users of metered templates pay.
	Credits CreditPrices
	// Upstreams serve the model: the lowest rank first, and those of a rank as the routing file lists them.
	Upstreams []Upstream
	// Cap is the number of concurrent calls of its upstreams together, the maximum where it is learned. RPM and TPM are their sums, 0 if one
	// has no limit.
	Cap, RPM, TPM int
}

// Upstream is one server, or one key of it, that serves a model.
type Upstream struct {
	Name     string
	Provider string
	ID       string // the provider's name for the model
	Rank     int
	// Cap is the number of concurrent calls. With Auto it is learned: Cap is the maximum, and Min the minimum.
	Cap, Min        int
	Auto            bool
	ProviderCap     int // of all upstreams of the provider together, 0 for no limit
	RPM, TPM        int
	ContextTokens   int // 0 if it is unknown
	MaxOutputTokens int
	// Unbounded: forwarded requests have no other bound of their answers than their own, because the file has none and nothing is reserved for them.
	Unbounded bool
	Timeouts  Timeouts
	Price     Price
	// Extra are further fields of requests that it accepts.
	Extra []string
	// Responses: it speaks the responses API, too. Account names whose key it uses, see account.
	Responses bool
	Account   string

	config UpstreamConfig
}

// CostMicros returns the cost of a call in millionths of a US dollar.
func (u Upstream) CostMicros(used berth.Usage) int64 {
	cachedPrice := u.Price.Input
	if u.Price.CachedInput != nil {
		cachedPrice = *u.Price.CachedInput
	}
	cached := min(max(used.CachedTokens, 0), used.InputTokens)
	return int64(math.Round(float64(used.InputTokens-cached)*u.Price.Input + float64(cached)*cachedPrice + float64(used.OutputTokens)*u.Price.Output))
}

// Providers returns the providers of the model, each once.
func (m Model) Providers() (names []string) {
	for _, u := range m.Upstreams {
		if !slices.Contains(names, u.Provider) {
			names = append(names, u.Provider)
		}
	}
	return names
}

// Upstream returns the upstream of that name.
func (m Model) Upstream(name string) (Upstream, bool) {
	i := slices.IndexFunc(m.Upstreams, func(u Upstream) bool { return u.Name == name })
	if i < 0 {
		return Upstream{}, false
	}
	return m.Upstreams[i], true
}

// model returns the model of that name in the routing file.
func (c *Catalog) model(name string, cfg ModelConfig) Model {
	m := Model{Name: name, Aliases: cfg.Aliases, Credits: cfg.Credits}
	for _, u := range cfg.complete(name) {
		up := Upstream{
			Name: u.Name, Provider: u.Provider, ID: u.ID, Rank: u.Rank, Cap: u.Cap.Calls, ProviderCap: c.cfg.Providers[u.Provider].Cap,
			RPM: *u.RPM, TPM: *u.TPM, ContextTokens: u.ContextTokens, MaxOutputTokens: u.MaxOutputTokens, Timeouts: u.Timeouts, Price: *u.Price,
			Extra: u.Extra, Unbounded: !u.bounded && cfg.Credits == (CreditPrices{}), Responses: u.Responses != nil && *u.Responses, config: u,
		}
		up.Account = account(up.Provider, c.keySetting(up))
		if u.Cap.Auto {
			up.Auto, up.Cap, up.Min = true, u.Max, u.Min
		}
		m.Upstreams = append(m.Upstreams, up)
		m.Cap += up.Cap
		m.RPM += up.RPM
		m.TPM += up.TPM
	}
	if slices.ContainsFunc(m.Upstreams, func(u Upstream) bool { return u.RPM == 0 }) {
		m.RPM = 0
	}
	if slices.ContainsFunc(m.Upstreams, func(u Upstream) bool { return u.TPM == 0 }) {
		m.TPM = 0
	}
	slices.SortStableFunc(m.Upstreams, func(a, b Upstream) int { return cmp.Compare(a.Rank, b.Rank) })
	return m
}

// Models returns the models, sorted by name.
func (c *Catalog) Models() []Model {
	return slices.SortedFunc(maps.Values(c.models), func(a, b Model) int { return cmp.Compare(a.Name, b.Name) })
}

// Model returns the model of that name or alias.
func (c *Catalog) Model(name string) (Model, bool) {
	m, ok := c.models[c.names[name]]
	return m, ok
}

// Limits returns the limits with which calls of a model wait for a slot. They are of no revision, so that those of any process precede them,
// if the routing file does not have the model. userSlots is the number of slots of one user, 0 for no limit.
func (c *Catalog) Limits(model string, userSlots int) lua.ModelLimits {
	l := lua.ModelLimits{UserCap: userSlots, Queues: c.weights}
	m, ok := c.Model(model)
	if !ok {
		l.Revision = -1
	}
	for _, u := range m.Upstreams {
		l.Upstreams = append(l.Upstreams, lua.UpstreamLimits{
			Name: u.Name, Rank: u.Rank, Cap: u.Cap, Auto: u.Auto, Min: u.Min, RPM: u.RPM, TPM: u.TPM,
			Provider: u.Provider, ProviderCap: u.ProviderCap, Context: u.ContextTokens,
		})
	}
	return l
}

// Served returns an error with CodeProviderKey that names the missing setting when this process cannot call any upstream of the model.
func (c *Catalog) Served(model string) error {
	_, _, err := c.endpoint(model, "")
	return err
}

// ServedBy returns the provider that serves calls of an upstream, LocalProvider, or "" when this process cannot call it.
func (c *Catalog) ServedBy(model, upstream string) string {
	_, ep, err := c.endpoint(model, upstream)
	if err != nil {
		return ""
	}
	return ep.servedBy
}

// Unkeyed returns the upstreams of a model that this process cannot call, for which keys are missing. If it can call none, and has the local
// simulator, that serves all.
func (c *Catalog) Unkeyed(model string) (names []string) {
	m, _ := c.Model(model)
	for _, u := range m.Upstreams {
		if _, err := c.endpointOf(m, u); err != nil {
			names = append(names, u.Name)
		}
	}
	return names
}

// TooSmall returns the upstreams of a model that cannot have more room for texts than one for which they were too long, which is one of them.
func (c *Catalog) TooSmall(model, upstream string) []string {
	m, _ := c.Model(model)
	names := []string{upstream}
	failed, _ := m.Upstream(upstream)
	for _, u := range m.Upstreams {
		if u.Name != upstream && u.ContextTokens > 0 && u.ContextTokens <= failed.ContextTokens {
			names = append(names, u.Name)
		}
	}
	return names
}

// KeySetting returns the name of the setting with the API key that calls of a model need, of several upstreams any. It is empty if an
// upstream needs none.
func (c *Catalog) KeySetting(model string) string {
	m, _ := c.Model(model)
	var settings []string
	for _, u := range m.Upstreams {
		setting := c.keySetting(u)
		switch {
		case setting == "" || c.cfg.Providers[u.Provider].KeyOptional:
			return ""
		case !slices.Contains(settings, setting):
			settings = append(settings, setting)
		}
	}
	return strings.Join(settings, " or ")
}

func (c *Catalog) keySetting(u Upstream) string {
	return cmp.Or(u.config.KeySetting, c.cfg.Providers[u.Provider].KeySetting)
}

// endpoint is the server that calls of an upstream are sent to.
type endpoint struct {
	model          string
	upstream       string
	servedBy       string
	baseURL        string
	key            string
	keySetting     string
	modelID        string
	maxTokensField string
	// unwanted are the optional fields that the routing file excludes.
	unwanted fields
	// extra are further fields of requests that it accepts.
	extra []string
	// responses: it speaks the responses API. account is that of the upstream.
	responses bool
	account   string
}

// endpoint returns an upstream of a model with its server; an empty name means the first that this process can call.
func (c *Catalog) endpoint(model, upstream string) (Upstream, endpoint, error) {
	m, ok := c.Model(model)
	if !ok {
		return Upstream{}, endpoint{}, &CallError{Code: berth.CodeInternal, Model: model, Message: fmt.Sprintf("model %q is not in the catalog", model)}
	}
	var failed error
	for _, u := range m.Upstreams {
		if upstream != "" && upstream != u.Name {
			continue
		}
		ep, err := c.endpointOf(m, u)
		if err == nil {
			return u, ep, nil
		}
		failed = cmp.Or(failed, err)
	}
	if failed == nil {
		failed = &CallError{
			Code: berth.CodeUnavailable, Scope: ScopeUpstream, Retryable: true, Model: m.Name, Upstream: upstream,
			Message: fmt.Sprintf("model %s has no upstream %q in the routing file of this process", m.Name, upstream),
		}
	}
	return Upstream{}, endpoint{}, failed
}

// endpointOf returns the server of an upstream, or the local simulator if no upstream of the model has a key.
func (c *Catalog) endpointOf(m Model, u Upstream) (endpoint, error) {
	ep, err := c.direct(m, u)
	if !errors.Is(err, errNoKey) || c.settings.LocalURL == "" {
		return ep, err
	}
	for _, other := range m.Upstreams {
		if other.Name == u.Name {
			continue
		}
		if _, failed := c.direct(m, other); !errors.Is(failed, errNoKey) {
			return ep, err
		}
	}
	return endpoint{
		model: m.Name, upstream: u.Name, servedBy: LocalProvider, baseURL: c.settings.LocalURL, modelID: m.Name, maxTokensField: maxTokens,
		extra: u.Extra,
	}, nil
}

var errNoKey = errors.New("no API key")

// direct returns the server of an upstream. Its error wraps errNoKey if a key is missing.
func (c *Catalog) direct(m Model, u Upstream) (endpoint, error) {
	p := c.cfg.Providers[u.Provider]
	required := c.keySetting(u)
	failed := &CallError{Provider: u.Provider, Model: m.Name, Upstream: u.Name, Scope: ScopeUpstream}
	key, setting, err := c.settings.key(required)
	switch {
	case err != nil:
		failed.Code, failed.Retryable, failed.Err = berth.CodeProviderUnavailable, true, err
		failed.Message = fmt.Sprintf("the API key for %s cannot be read: check %s", u.Provider, setting)
		return endpoint{}, failed
	case key == "" && required != "" && !p.KeyOptional:
		failed.Code, failed.Err = berth.CodeProviderKey, errNoKey
		failed.Message = fmt.Sprintf("no API key for %s: set %s, or set BERTH_LOCAL_MODEL_URL to use the local model simulator", u.Provider, required)
		return endpoint{}, failed
	}
	ep := endpoint{
		model: m.Name, upstream: u.Name, servedBy: u.Provider, baseURL: cmp.Or(c.settings.BaseURLs[u.Provider], p.BaseURL),
		key: key, keySetting: setting, modelID: u.ID, maxTokensField: p.MaxTokensField,
		extra: u.Extra, responses: u.Responses, account: u.Account,
	}
	if u.config.JSONMode != nil && !*u.config.JSONMode {
		ep.unwanted |= fieldResponseFormat
	}
	if p.StreamOptions != nil && !*p.StreamOptions {
		ep.unwanted |= fieldStreamOptions
	}
	return ep, nil
}
