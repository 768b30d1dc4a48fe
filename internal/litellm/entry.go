package litellm

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a routing file.
const (
	maxCap       = 10_000
	maxRPM       = 1_000_000
	maxTPM       = 1_000_000_000
	maxRank      = 100
	maxOutput    = 1_000_000
	maxContext   = 100_000_000
	maxPrice     = 1_000_000
	maxSeconds   = 3600
	maxUpstreams = 32

	defaultOutput = 8192 // maxOutputTokens of a model without it
)

var upstreamName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// entry carries an entry of the list of models.
func (c *converter) entry(v value) {
	params, info := v.get("litellm_params"), v.get("model_info")
	name := v.get("model_name").text()
	given, unknown := c.resolve(params.get("model"))
	drop := func(format string, args ...any) {
		c.drop(v, "the model %s: %s", cmp.Or(name, "without a name"), fmt.Sprintf(format, args...))
	}
	mode := info.get("mode").text()
	switch {
	case name == "":
		drop("model_name is missing")
		return
	case unknown != "":
		drop("litellm_params.model is the environment variable %s, whose value is not in this file: write it", unknown)
		return
	case given == "":
		drop("litellm_params.model is missing")
		return
	case strings.Contains(name+given, "*"):
		drop("berth needs each model by its name: replace the wildcard by an entry for each")
		return
	case slices.Contains(notServed, mode):
		drop("berth serves chats and embeddings, and its mode is %s", mode)
		return
	}
	prefix, id := split(given, params.get("custom_llm_provider").text())
	id, answers := strings.CutPrefix(id, "responses/")
	values := []value{params, c.credential(params.get("litellm_credential_name"))}
	if specs[prefix].onlyChats && mode == "embedding" {
		drop("%s has no embeddings in OpenAI's protocol", prefix)
		return
	}
	p, reason := c.provider(prefix, values)
	if reason != "" {
		drop("%s", reason)
		return
	}
	m := c.model(name)
	if len(m.upstreams) == maxUpstreams {
		drop("a model has at most %d upstreams", maxUpstreams)
		return
	}
	if answers {
		c.note(params.get("model"), "responses/ chooses the provider's responses API: berth sends it responses, and chats to chat completions, which the model has to serve for these")
	}
	u := &upstream{Provider: p.name, ID: modelID(prefix, id), Responses: answers}
	if own := info.get("id").text(); upstreamName.MatchString(own) {
		u.Name = own
	}
	c.limits(u, v)
	c.tokens(u, params, info, mode)
	c.price(u, params, info)
	m.upstreams = append(m.upstreams, u)

	c.dropAll(v, []string{"model_name", "litellm_params", "model_info", "rpm", "tpm"})
	c.dropAll(params, []string{
		"model", "custom_llm_provider", "litellm_credential_name", "api_key", "api_base", "base_url", "rpm", "tpm", "max_parallel_requests", "order",
		"timeout", "stream_timeout", "max_tokens", "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
	}, paramReasons)
	c.dropAll(info, []string{
		"id", "mode", "max_tokens", "max_input_tokens", "max_output_tokens", "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
	}, infoReasons)
}

// credential returns the values of a credential.
func (c *converter) credential(name value) value {
	values, ok := c.credentials[name.text()]
	if !ok && !name.empty() {
		c.drop(name, "credential_list has no such credential")
	}
	return values
}

// firstOf returns the first of the values that is set, under any of the names.
func firstOf(values []value, names ...string) value {
	for _, v := range values {
		for _, name := range names {
			if found := v.get(name); !found.empty() {
				return found
			}
		}
	}
	return values[0].get(names[0])
}

// provider returns the provider of an entry, or why it cannot be carried.
func (c *converter) provider(prefix string, values []value) (p *provider, reason string) {
	s, known := specs[prefix]
	apiBase := firstOf(values, "api_base", "base_url")
	base, unknown := c.resolve(apiBase)
	if s.variable != "" && base+unknown == "" {
		if base = c.env[s.variable]; base == "" {
			unknown = s.variable
		}
		c.read[s.variable] = true
	}
	switch {
	case prefix == "" && base+unknown == "":
		return nil, "its provider is not known: write it before the name, such as openai/name"
	case prefix == "":
		prefix, s = "openai", specs["openai"]
	case prefix == "cloudflare":
		return nil, "its address has the number of your account: write openai/ in its place, with api_base https://api.cloudflare.com/client/v4/accounts/NUMBER/ai/v1"
	case slices.Contains(foreign, prefix):
		return nil, prefix + " does not speak OpenAI's protocol"
	case !known:
		return nil, "the protocol and the address of " + prefix + " are not known: if it speaks OpenAI's protocol, write openai/ in its place, with api_base"
	}
	out := provider{name: prefix, BaseURL: s.baseURL}
	switch {
	case unknown != "":
		host := strings.ToLower(strings.ReplaceAll(unknown, "_", "-"))
		out.BaseURL = "https://" + host + ".invalid" + cmp.Or(s.path, "/v1")
		c.note(apiBase, "the address is the environment variable %s, whose value is not in this file: write it in place of %s", unknown, out.BaseURL)
	case s.native && s.isPublic(base):
		base = s.baseURL
	case s.native && base != "":
		return nil, "LiteLLM calls " + prefix + " by a protocol of its own: if its api_base has OpenAI's, too, write openai/ in its place, with that address"
	case base != "":
		address, ok := s.address(base)
		if !ok {
			return nil, "api_base must be an address such as https://example.com/v1, without a user or password"
		}
		if strings.ContainsAny(base, "?#") {
			c.drop(apiBase, "the part of the address behind its path")
		}
		out.BaseURL = address
	case s.baseURL == "":
		return nil, "api_base is missing"
	}
	own := base+unknown != "" && out.BaseURL != s.baseURL
	out.KeySetting = c.keySetting(firstOf(values, "api_key"), prefix, s, own)
	if s.boundsCompletion && (!own || prefix == "azure") {
		out.MaxTokensField = "max_completion_tokens"
	}
	for _, other := range c.providers {
		if other.same(out) {
			return other, ""
		}
	}
	for n := 2; slices.ContainsFunc(c.providers, func(other *provider) bool { return other.name == out.name }); n++ {
		out.name = fmt.Sprintf("%s-%d", prefix, n)
	}
	c.providers = append(c.providers, &out)
	return &out, ""
}

// keySetting returns the name of the setting with the key of an entry, "" for none. own: its server is not the public one of the provider.
func (c *converter) keySetting(key value, prefix string, s spec, own bool) string {
	name, isVariable := variable(key.text())
	switch {
	case key.empty() && own && s.baseURL != "" && s.key != "":
		c.note(key, "is missing, and LiteLLM sends %s to this server: berth sends no key; set keySetting of the provider if it needs one", s.key)
		return ""
	case key.empty():
		return s.key
	case isVariable:
		setting := settingOf(name)
		if setting != name {
			c.note(key, "berth calls the key %s: names of settings have capitals", setting)
		}
		return setting
	case noKeys.MatchString(key.text()):
		c.note(key, "is not a key: berth sends none")
		return ""
	}
	setting, known := c.literals[key.text()]
	if !known {
		first := cmp.Or(s.key, strings.ToUpper(strings.ReplaceAll(prefix, "-", "_"))+"_API_KEY")
		setting = first
		for n := 2; c.settings[setting]; n++ {
			setting = fmt.Sprintf("%s_%d", first, n)
		}
		c.literals[key.text()], c.settings[setting] = setting, true
	}
	c.note(key, "secrets are not carried: set %s to it in BERTH_PROVIDER_KEYS", setting)
	return setting
}

// limits carries how many calls an upstream gets, when and for how long.
func (c *converter) limits(u *upstream, v value) {
	params := v.get("litellm_params")
	both := []value{params, v}
	u.RPM, u.TPM = c.whole(firstOf(both, "rpm"), maxRPM), c.whole(firstOf(both, "tpm"), maxTPM)
	u.order = c.whole(params.get("order"), maxRank)
	parallel := params.get("max_parallel_requests")
	if parallel.empty() {
		parallel = c.defaults.parallel
	}
	if n := c.whole(parallel, maxCap); n > 0 {
		u.Cap = n
	} else {
		u.Cap, c.uncapped = "auto", c.uncapped+1
	}
	timeout, stream := params.get("timeout"), params.get("stream_timeout")
	if timeout.empty() {
		timeout = c.defaults.timeout
	}
	if stream.empty() {
		stream = c.defaults.streamTimeout
	}
	whole := c.seconds(timeout)
	firstByte := whole
	if !stream.empty() {
		firstByte = c.seconds(stream)
	}
	if whole+firstByte != "" {
		u.Timeouts = &timeouts{FirstByte: firstByte, Whole: whole}
	}
}

// seconds returns a duration of a routing file, "" for none.
func (c *converter) seconds(v value) string {
	const least = 0.001
	n := c.number(v, least, maxSeconds)
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(math.Round(n*1000)/1000, 'f', -1, 64) + "s"
}

// tokens carries the bounds of prompt and answer.
func (c *converter) tokens(u *upstream, params, info value, mode string) {
	input, output := info.get("max_input_tokens"), firstOf([]value{info}, "max_output_tokens", "max_tokens")
	if mode == "embedding" {
		for _, v := range []value{input, info.get("max_tokens"), info.get("max_output_tokens"), params.get("max_tokens")} {
			if !v.empty() {
				c.drop(v, "the provider checks the length of what it makes vectors of")
			}
		}
		return
	}
	legacy := output == info.get("max_tokens") && input.empty()
	if output.empty() {
		output = params.get("max_tokens")
	} else if limit := params.get("max_tokens"); !limit.empty() {
		c.drop(limit, "%s", clients)
	}
	u.MaxOutputTokens = c.whole(output, maxOutput)
	switch {
	case u.MaxOutputTokens > 0 && output.path == params.get("max_tokens").path:
		c.note(output, "bounds each answer in berth; in LiteLLM, clients may ask for more")
	case u.MaxOutputTokens > 0 && legacy:
		c.note(output, "treated as the bound of an answer, maxOutputTokens: correct it if it is that of the prompt")
	case u.MaxOutputTokens == 0:
		c.unbounded++
	}
	if n := c.whole(input, maxContext-maxOutput); n > 0 {
		u.ContextTokens = n + cmp.Or(u.MaxOutputTokens, defaultOutput)
	}
}

// price carries prices, which berth has for a million tokens.
func (c *converter) price(u *upstream, params, info value) {
	values := []value{params, info}
	perMillion := func(name string) (float64, bool) {
		v := firstOf(values, name)
		const tokens, digits = 1e6, 1e9
		return math.Round(c.number(v, 0, maxPrice/tokens)*tokens*digits) / digits, !v.empty()
	}
	input, hasInput := perMillion("input_cost_per_token")
	output, hasOutput := perMillion("output_cost_per_token")
	cached, hasCached := perMillion("cache_read_input_token_cost")
	if !hasInput && !hasOutput && !hasCached {
		c.unpriced++
		return
	}
	c.priced++
	u.Price = &price{Input: input, Output: output}
	if hasCached {
		u.Price.CachedInput = &cached
	}
}
