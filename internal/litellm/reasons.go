package litellm

import (
	"slices"
	"strings"
)

// Why settings are not carried.
const (
	noCounterpart = "berth has no counterpart"
	repeats       = "berth repeats failed calls and uses other upstreams by the causes in docs/providers.md"
	pauses        = "berth pauses an upstream that fails, for as long as the cause and the provider say"
	otherModel    = "a fallback to another model: berth serves the model that was asked for; list the other one's servers as upstreams of rank 2, if they may serve it"
	observes      = "berth has metrics, traces and the log of calls: docs/telemetry.md"
	logs          = "berth has BERTH_LOG_LEVEL and BERTH_LOG_FORMAT"
	stores        = "berth has a database and a Redis of its own: docs/operations.md"
	inDatabase    = stores + "; what LiteLLM's database has, such as virtual keys, teams and models, is not in this file"
	access        = "berth has keys, teams and tokens of its own: docs/operations.md"
	budgets       = "a budget belongs to a key or a team, not to an upstream"
	clients       = "clients send it with their requests, which berth forwards"
	foreignKey    = "berth sends an API key"
	headers       = "berth sends no further headers"
	strict        = "berth refuses an unknown parameter by its name instead of dropping it; list those that a server accepts in extra"
	tagged        = "berth does not choose upstreams by tags"
	ranked        = "berth uses the upstreams of the lowest rank first, those with free slots, and prefers the one whose cache has the conversation"
	onlyChats     = "berth forwards chats and embeddings only"
	noReuse       = "berth does not reuse answers"
	noGuards      = "berth has no guardrails"
	unsplit       = "berth has one limit for the tokens of prompt and answer: tpm"
	checksSize    = "berth always checks contextTokens"
	probes        = "berth tries a paused upstream with one call; berth doctor checks all of them"
	verifies      = "berth verifies certificates; SSL_CERT_FILE names further authorities"
	otherPrice    = "berth has prices for input, cached input and output"
)

// reasons are names of settings by the reason for which they are not carried. A name that ends with * is the beginning of names.
type reasons map[string]string

// Those of litellm_params.
var paramReasons = reasons{
	clients: `temperature top_p n seed stop user tools tool_choice functions logprobs dimensions reasoning_effort thinking frequency_penalty
		presence_penalty response_format encoding_format max_completion_tokens stream`,
	repeats:    "num_retries max_retries",
	pauses:     "cooldown_time",
	tagged:     "tags tag_regex",
	headers:    "extra_headers headers",
	strict:     "drop_params additional_drop_params",
	budgets:    "max_budget budget_duration",
	verifies:   "ssl_verify",
	unsplit:    "itpm otpm",
	noReuse:    "cache",
	observes:   "callbacks success_callback failure_callback langfuse_*",
	otherPrice: "*_cost*",
	foreignKey: "azure_ad_token tenant_id client_id client_secret azure_username azure_password azure_scope",
	"a setting of a provider that does not speak OpenAI's protocol":     "aws_* vertex_* watsonx_*",
	"the address of Azure's version 1 needs none":                       "api_version",
	"upstreams of a rank share the calls by their free slots":           "weight",
	"berth sends no header OpenAI-Organization: use a key of a project": "organization",
	"clients send such fields themselves; list their names in extra":    "extra_body",
	"berth forwards all parameters of OpenAI":                           "allowed_openai_params",
	"berth has a model simulator: BERTH_LOCAL_MODEL_URL":                "mock_response",
	"berth sends only the operator's keys":                              "configurable_clientside_auth_params",
	"berth does not choose models":                                      "auto_router_* complexity_router_* adaptive_router_* quality_router_*",
}

// Those of model_info.
var infoReasons = reasons{
	access:     "access_groups team_id team_public_model_name",
	otherPrice: "*_cost*",
	"names a price of LiteLLM's own table: set price":                "base_model",
	"give each environment a routing file of its own":                "supported_environments",
	"a description of the model, which clients of berth do not read": "supports_* description metadata version litellm_provider",
}

// Those of router_settings, which litellm_settings may have, too.
var routerReasons = reasons{
	ranked:     "routing_strategy routing_strategy_args routing_groups",
	otherModel: "fallbacks default_fallbacks content_policy_fallbacks",
	repeats:    "max_fallbacks num_retries max_retries retry_after retry_policy model_group_retry_policy",
	pauses:     "allowed_fails allowed_fails_policy cooldown_time disable_cooldowns",
	checksSize: "enable_pre_call_checks enable_pre_call_check optional_pre_call_checks",
	tagged:     "enable_tag_filtering tag_filtering_match_any",
	clients:    "default_litellm_params",
	stores:     "redis_* cache_kwargs",
	noReuse:    "cache_responses",
	logs:       "set_verbose debug_level",
	budgets:    "provider_budget_config",
	"a longer request uses an upstream of the same model with more contextTokens": "context_window_fallbacks",
	"a call's queue is chosen by its tier: docs/providers.md":                     "default_priority",
	"a call that ends starts the next one immediately":                            "polling_interval",
}

// Those of litellm_settings.
var litellmReasons = reasons{
	observes: `callbacks success_callback failure_callback service_callbacks turn_off_message_logging redact_user_api_key_info langfuse_*
		disable_end_user_cost*`,
	logs:     "json_logs",
	strict:   "drop_params",
	noReuse:  "cache cache_params",
	noGuards: "guardrails",
	budgets:  "max_budget budget_duration",
	verifies: "ssl_verify",
	access: `default_team_settings default_internal_user_params key_generation_settings upperbound_key_generate_params default_key_generate_params
		max_internal_user_budget`,
	"berth forwards requests as they are": "modify_params",
}

// Those of general_settings.
var generalReasons = reasons{
	inDatabase:                "database_url store_model_in_db",
	stores:                    "database_*",
	"a secret, and " + access: "master_key",
	access:                    "custom_auth enable_jwt_auth litellm_jwtauth ui_* key_management_*",
	observes:                  "alerting alerting_* alert_types",
	probes:                    "background_health_checks health_check_interval",
	onlyChats:                 "pass_through_endpoints",
	"a limit of LiteLLM's keys; in berth, teams, applications and users have limits": "max_parallel_requests",
	"upstreams and providers have caps: set cap of the provider":                     "global_max_parallel_requests",
	"a proxy in front of berth can do it":                                            "allowed_ips",
	"a body has at most 32 MiB":                                                      "max_request_size_mb",
	"a request names its model":                                                      "completion_model embedding_model infer_model_from_keys",
	"keys have a retention of what is stored of their calls":                         "store_prompts_in_spend_logs",
}

// Those of whole sections.
var sectionReasons = reasons{
	noGuards:  "guardrails policies",
	observes:  "callback_settings",
	access:    "model_access_groups teams",
	onlyChats: "mcp_servers search_tools vector_store_registry files_settings finetune_settings assistant_settings agent_list",
	"the files are not read: import each of them, or copy them into this one": "include",
	"berth has templates: docs/templates.md":                                  "prompts",
	"read only where others refer to it":                                      "x-*",
}

// sectionNames returns the names of all sections.
func sectionNames() []string {
	names := []string{"model_list", "router_settings", "litellm_settings", "general_settings", "environment_variables", "credential_list"}
	for _, more := range sectionReasons {
		names = append(names, strings.Fields(more)...)
	}
	slices.Sort(names) // of two that are as near, always the same
	return slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "*") })
}

// notServed are the modes of models that berth does not serve.
var notServed = []string{
	"completion", "responses", "image_generation", "image_edit", "audio_transcription", "audio_speech", "moderation", "moderations", "rerank", "batch",
	"realtime", "video_generation", "search", "ocr", "vector_store",
}

// why returns the reason for which a setting is not carried. A whole name precedes the beginning of one.
func why(name string, tables ...reasons) string {
	best, exact := noCounterpart, false
	for _, t := range tables {
		for reason, names := range t {
			all := strings.Fields(names)
			switch {
			case slices.Contains(all, name):
				best, exact = reason, true
			case !exact && slices.ContainsFunc(all, func(pattern string) bool { return matches(name, pattern) }):
				best = reason
			}
		}
		if exact {
			break
		}
	}
	return best
}

// matches reports whether a name begins as a pattern does, or has the part between its two stars.
func matches(name, pattern string) bool {
	part, found := strings.CutSuffix(pattern, "*")
	if inner, anywhere := strings.CutPrefix(part, "*"); anywhere {
		return found && strings.Contains(name, inner)
	}
	return found && strings.HasPrefix(name, part)
}
