package litellm

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// spec is what is known of a provider of LiteLLM that speaks OpenAI's protocol.
type spec struct {
	// baseURL is its public address, empty if each user has an own one.
	baseURL string
	// key is the environment variable from which LiteLLM reads its API key.
	key string
	// variable is the environment variable from which LiteLLM reads its address, of a provider without a public one.
	variable string
	// path is what berth adds to an api_base that does not have it.
	path string
	// boundsCompletion: its newer models refuse max_tokens.
	boundsCompletion bool
	// native: LiteLLM calls it by a protocol of its own. Only its public address is known to have OpenAI's protocol, too.
	native bool
	// onlyChats: it has no embeddings in OpenAI's protocol.
	onlyChats bool
}

// specs are the providers by the prefixes of their models.
var specs = map[string]spec{
	"openai":       {baseURL: "https://api.openai.com/v1", key: "OPENAI_API_KEY", boundsCompletion: true},
	"azure":        {key: "AZURE_API_KEY", variable: "AZURE_API_BASE", path: "/openai/v1", boundsCompletion: true},
	"anthropic":    {baseURL: "https://api.anthropic.com/v1", key: "ANTHROPIC_API_KEY", native: true, onlyChats: true},
	"cerebras":     {baseURL: "https://api.cerebras.ai/v1", key: "CEREBRAS_API_KEY"},
	"clarifai":     {baseURL: "https://api.clarifai.com/v2/ext/openai/v1", key: "CLARIFAI_API_KEY"},
	"codestral":    {baseURL: "https://codestral.mistral.ai/v1", key: "CODESTRAL_API_KEY"},
	"cohere":       {baseURL: "https://api.cohere.ai/compatibility/v1", key: "COHERE_API_KEY", native: true},
	"cohere_chat":  {baseURL: "https://api.cohere.ai/compatibility/v1", key: "COHERE_API_KEY", native: true},
	"dashscope":    {baseURL: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", key: "DASHSCOPE_API_KEY"},
	"databricks":   {key: "DATABRICKS_API_KEY", variable: "DATABRICKS_API_BASE"},
	"deepinfra":    {baseURL: "https://api.deepinfra.com/v1/openai", key: "DEEPINFRA_API_KEY"},
	"deepseek":     {baseURL: "https://api.deepseek.com/v1", key: "DEEPSEEK_API_KEY"},
	"fireworks_ai": {baseURL: "https://api.fireworks.ai/inference/v1", key: "FIREWORKS_API_KEY"},
	"gemini":       {baseURL: "https://generativelanguage.googleapis.com/v1beta/openai", key: "GEMINI_API_KEY", native: true},
	"groq":         {baseURL: "https://api.groq.com/openai/v1", key: "GROQ_API_KEY"},
	"huggingface":  {baseURL: "https://router.huggingface.co/v1", key: "HF_TOKEN", native: true, onlyChats: true},
	"meta_llama":   {baseURL: "https://api.llama.com/compat/v1", key: "LLAMA_API_KEY"},
	"mistral":      {baseURL: "https://api.mistral.ai/v1", key: "MISTRAL_API_KEY"},
	"moonshot":     {baseURL: "https://api.moonshot.ai/v1", key: "MOONSHOT_API_KEY"},
	"nvidia_nim":   {baseURL: "https://integrate.api.nvidia.com/v1", key: "NVIDIA_NIM_API_KEY"},
	"openrouter":   {baseURL: "https://openrouter.ai/api/v1", key: "OPENROUTER_API_KEY"},
	"perplexity":   {baseURL: "https://api.perplexity.ai", key: "PERPLEXITYAI_API_KEY"},
	"sambanova":    {baseURL: "https://api.sambanova.ai/v1", key: "SAMBANOVA_API_KEY"},
	"together_ai":  {baseURL: "https://api.together.xyz/v1", key: "TOGETHERAI_API_KEY"},
	"volcengine":   {baseURL: "https://ark.cn-beijing.volces.com/api/v3", key: "VOLCENGINE_API_KEY"},
	"xai":          {baseURL: "https://api.x.ai/v1", key: "XAI_API_KEY"},
	// Servers of the user's own.
	"hosted_vllm":   {variable: "HOSTED_VLLM_API_BASE"},
	"vllm":          {},
	"litellm_proxy": {key: "LITELLM_PROXY_API_KEY", variable: "LITELLM_PROXY_API_BASE"},
	"llamafile":     {baseURL: "http://127.0.0.1:8080/v1"},
	"lm_studio":     {variable: "LM_STUDIO_API_BASE"},
	"ollama":        {baseURL: "http://127.0.0.1:11434/v1", path: "/v1"},
	"ollama_chat":   {baseURL: "http://127.0.0.1:11434/v1", path: "/v1"},
	"openai_like":   {},
	"custom_openai": {},
	"xinference":    {},
}

// foreign are providers that speak protocols of their own.
var foreign = []string{
	"ai21", "aleph_alpha", "anthropic_text", "azure_text", "bedrock", "bedrock_converse", "cloudflare", "gigachat", "maritalk", "nlp_cloud", "oci", "palm",
	"petals", "predibase", "replicate", "sagemaker", "sagemaker_chat", "sap", "snowflake", "text-completion-codestral", "text-completion-openai", "triton",
	"vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text",
}

// bare are models that LiteLLM knows without a prefix.
var bare = []struct {
	name     *regexp.Regexp
	provider string
}{
	{regexp.MustCompile(`^(gpt-|chatgpt-|o[1-9](-|$)|text-embedding-|ft:)`), "openai"},
	{regexp.MustCompile(`^claude-`), "anthropic"},
	{regexp.MustCompile(`^(gemini-|text-bison|chat-bison)`), "vertex_ai"},
	{regexp.MustCompile(`^(command|embed-)`), "cohere"},
}

// split returns the provider and the provider's name of a model. The provider is empty if the name does not say it.
func split(model, custom string) (provider, id string) {
	prefix, rest, found := strings.Cut(model, "/")
	switch _, known := specs[prefix]; {
	case custom != "":
		return custom, strings.TrimPrefix(model, custom+"/")
	case found && (known || slices.Contains(foreign, prefix)):
		return prefix, rest
	}
	for _, b := range bare {
		if b.name.MatchString(model) {
			return b.provider, model
		}
	}
	if found {
		return prefix, rest
	}
	return "", model
}

// modelID returns the name that the provider's OpenAI protocol has for a model.
func modelID(provider, id string) string {
	switch parts := strings.Split(id, "/"); {
	case provider == "fireworks_ai" && len(parts) == 1:
		return "accounts/fireworks/models/" + id
	case provider == "azure" && (parts[0] == "o_series" || parts[0] == "gpt5_series"): // says to LiteLLM what the deployment has
		return strings.Join(parts[1:], "/")
	case provider == "huggingface" && len(parts) == 3: // the provider that serves it, then owner and model
		return parts[1] + "/" + parts[2] + ":" + parts[0]
	case provider == "clarifai" && len(parts) == 1:
		if of := strings.SplitN(id, ".", 3); len(of) == 3 {
			return "https://clarifai.com/" + of[0] + "/" + of[1] + "/models/" + of[2]
		}
	}
	return id
}

// isPublic reports whether an api_base is on the public server of a provider.
func (s spec) isPublic(apiBase string) bool {
	given, err := url.Parse(apiBase)
	public, _ := url.Parse(s.baseURL)
	return err == nil && given.User == nil && strings.EqualFold(given.Host, public.Host)
}

// address returns the base URL of an api_base.
func (s spec) address(apiBase string) (string, bool) {
	u, err := url.Parse(apiBase)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", false
	}
	u.RawQuery, u.Fragment = "", "" // such as api-version
	path := strings.TrimRight(u.Path, "/")
	for _, end := range []string{"/chat/completions", "/embeddings"} {
		path = strings.TrimSuffix(path, end)
	}
	if i := strings.Index(path, "/openai/deployments"); s.path == "/openai/v1" && i >= 0 {
		path = path[:i]
	}
	if s.path == "/openai/v1" {
		path = strings.TrimSuffix(path, "/openai")
	}
	if !strings.HasSuffix(path, s.path) {
		path += s.path
	}
	u.Path, u.RawPath = path, ""
	return u.String(), true
}

// noKeys are texts that configurations have in place of a key of a server that needs none.
var noKeys = regexp.MustCompile(`(?i)^(none|null|empty|n/?a|dummy.*|fake.*|not[-_]?(needed|required|used)|no[-_]?key.*|sk-no-key.*|anything|x+|-+|key|api[-_]?key|ollama|vllm|lm-studio)$`)

var environment = regexp.MustCompile(`^(?:os\.environ/|\$\{?)([A-Za-z_][A-Za-z0-9_]*)\}?$`)

// variable returns the name of the environment variable that a text refers to.
func variable(text string) (name string, ok bool) {
	m := environment.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// settingOf returns the name of the setting for an environment variable: capitals, of which the first one is a letter.
func settingOf(variable string) string {
	const most = 64
	name := strings.TrimLeft(strings.ToUpper(variable), "_0123456789")
	if name == "" {
		return "API_KEY"
	}
	return name[:min(len(name), most)]
}
