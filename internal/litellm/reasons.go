package litellm

import "strings"

// Why settings are not carried, by their names. Those that are not here have no counterpart.
var (
	repeats   = "berth repeats failed calls and uses other upstreams by the causes in docs/providers.md"
	pauses    = "berth pauses an upstream that fails, for as long as the cause and the provider say"
	otherName = "a fallback to another model: berth serves the model that was asked for; list the other one's servers as upstreams of rank 2, if they may serve it"
	observes  = "berth has metrics, traces and the log of calls: docs/telemetry.md"
	stores    = "berth has a database and a Redis of its own: docs/operations.md"
	access    = "berth has keys, teams and tokens of its own: docs/operations.md"
	clients   = "clients send it with their requests, which berth forwards"
	provides  = "a setting of a provider that does not speak OpenAI's protocol"
	describes = "a description for clients of LiteLLM"
)

// paramReasons are those of litellm_params.
var paramReasons = map[string]string{
	"api_version":                         "the address of Azure's version 1 needs none",
	"weight":                              "upstreams of a rank share the calls by their free slots",
	"num_retries":                         repeats,
	"max_retries":                         repeats,
	"cooldown_time":                       pauses,
	"tags":                                "berth does not choose upstreams by tags",
	"tag_regex":                           "berth does not choose upstreams by tags",
	"organization":                        "berth sends no header OpenAI-Organization: use a key of a project",
	"extra_headers":                       "berth sends no further headers",
	"headers":                             "berth sends no further headers",
	"extra_body":                          "clients send such fields themselves; the upstream lists their names in extra",
	"drop_params":                         "berth refuses an unknown parameter by its name instead of dropping it; list those that the server accepts in extra",
	"additional_drop_params":              "berth refuses an unknown parameter by its name instead of dropping it; list those that the server accepts in extra",
	"allowed_openai_params":               "berth forwards all parameters of OpenAI",
	"mock_response":                       "berth has a model simulator: BERTH_LOCAL_MODEL_URL",
	"max_budget":                          "a budget belongs to a key or a team, not to an upstream",
	"budget_duration":                     "a budget belongs to a key or a team, not to an upstream",
	"ssl_verify":                          "berth verifies certificates; SSL_CERT_FILE names further authorities",
	"azure_ad_token":                      "berth sends an API key",
	"tenant_id":                           "berth sends an API key",
	"client_id":                           "berth sends an API key",
	"client_secret":                       "berth sends an API key",
	"itpm":                                "berth has one limit for the tokens of prompt and answer: tpm",
	"otpm":                                "berth has one limit for the tokens of prompt and answer: tpm",
	"rewrite_model_name":                  "the answer has the name that the client has used",
	"cache":                               "berth does not reuse answers",
	"callbacks":                           observes,
	"success_callback":                    observes,
	"failure_callback":                    observes,
	"temperature":                         clients,
	"top_p":                               clients,
	"n":                                   clients,
	"seed":                                clients,
	"stop":                                clients,
	"user":                                clients,
	"tools":                               clients,
	"tool_choice":                         clients,
	"functions":                           clients,
	"logprobs":                            clients,
	"dimensions":                          clients,
	"reasoning_effort":                    clients,
	"thinking":                            clients,
	"frequency_penalty":                   clients,
	"presence_penalty":                    clients,
	"response_format":                     clients,
	"encoding_format":                     clients,
	"max_completion_tokens":               clients,
	"stream":                              clients,
	"configurable_clientside_auth_params": "berth sends only the operator's keys",
}

// infoReasons are those of model_info.
var infoReasons = map[string]string{
	"base_model":                      "names a price of LiteLLM's own table: set price",
	"access_groups":                   access,
	"team_id":                         access,
	"supported_environments":          "give each environment a routing file of its own",
	"cache_creation_input_token_cost": "berth has prices for input, cached input and output",
}

// routerReasons are those of router_settings, which litellm_settings may have as well.
var routerReasons = map[string]string{
	"routing_strategy":         "berth uses the upstreams of the lowest rank first, those with free slots, and prefers the one whose cache has the conversation",
	"routing_strategy_args":    "berth has no strategies",
	"routing_groups":           "berth has no strategies",
	"fallbacks":                otherName,
	"default_fallbacks":        otherName,
	"content_policy_fallbacks": otherName,
	"context_window_fallbacks": "a longer request uses an upstream of the same model with more contextTokens",
	"max_fallbacks":            repeats,
	"num_retries":              repeats,
	"max_retries":              repeats,
	"retry_after":              repeats,
	"retry_policy":             repeats,
	"model_group_retry_policy": repeats,
	"allowed_fails":            pauses,
	"allowed_fails_policy":     pauses,
	"cooldown_time":            pauses,
	"disable_cooldowns":        pauses,
	"enable_pre_call_checks":   "berth always checks contextTokens",
	"enable_pre_call_check":    "berth always checks contextTokens",
	"optional_pre_call_checks": "berth checks contextTokens, rpm and tpm, and prefers the upstream whose cache has the conversation",
	"enable_tag_filtering":     "berth does not choose upstreams by tags",
	"tag_filtering_match_any":  "berth does not choose upstreams by tags",
	"default_litellm_params":   clients,
	"redis_host":               stores,
	"redis_port":               stores,
	"redis_password":           stores,
	"redis_url":                stores,
	"redis_db":                 stores,
	"cache_responses":          "berth does not reuse answers",
	"cache_kwargs":             stores,
	"set_verbose":              "berth has BERTH_LOG_LEVEL",
	"debug_level":              "berth has BERTH_LOG_LEVEL",
	"provider_budget_config":   "a budget belongs to a key or a team, not to a provider",
	"default_priority":         "a call's queue is chosen by its tier: docs/providers.md",
	"polling_interval":         "a call that ends starts the next one immediately",
}

// litellmReasons are those of litellm_settings.
var litellmReasons = map[string]string{
	"callbacks":                      observes,
	"success_callback":               observes,
	"failure_callback":               observes,
	"service_callbacks":              observes,
	"turn_off_message_logging":       observes,
	"redact_user_api_key_info":       observes,
	"json_logs":                      "berth has BERTH_LOG_FORMAT",
	"drop_params":                    "berth refuses an unknown parameter by its name instead of dropping it; list those that a server accepts in extra",
	"modify_params":                  "berth forwards requests as they are",
	"cache":                          "berth does not reuse answers",
	"cache_params":                   "berth does not reuse answers",
	"guardrails":                     "berth has no guardrails",
	"max_budget":                     "a budget belongs to a key, a team or an account",
	"budget_duration":                "a budget belongs to a key, a team or an account",
	"ssl_verify":                     "berth verifies certificates; SSL_CERT_FILE names further authorities",
	"default_team_settings":          access,
	"default_internal_user_params":   access,
	"key_generation_settings":        access,
	"upperbound_key_generate_params": access,
	"default_key_generate_params":    access,
	"max_internal_user_budget":       access,
}

// generalReasons are those of general_settings.
var generalReasons = map[string]string{
	"master_key":                     "a secret, and " + access,
	"database_url":                   stores + "; virtual keys, teams and models that LiteLLM's database has are not in this file",
	"store_model_in_db":              "models that LiteLLM's database has are not in this file",
	"database_connection_pool_limit": stores,
	"database_connection_timeout":    stores,
	"max_parallel_requests":          "a limit of a key of LiteLLM; in berth, teams, applications and users have limits",
	"global_max_parallel_requests":   "berth has caps for each upstream and provider: set cap of the provider",
	"pass_through_endpoints":         "berth forwards chats and embeddings only",
	"alerting":                       observes,
	"alerting_threshold":             observes,
	"alerting_args":                  observes,
	"alert_types":                    observes,
	"background_health_checks":       "berth tries a paused upstream with one call; berth doctor checks all of them",
	"health_check_interval":          "berth tries a paused upstream with one call; berth doctor checks all of them",
	"custom_auth":                    access,
	"enable_jwt_auth":                access,
	"litellm_jwtauth":                access,
	"allowed_ips":                    "a proxy in front of berth can do it",
	"max_request_size_mb":            "a body has at most 32 MiB",
	"completion_model":               "a request names its model",
	"infer_model_from_keys":          "each model is named in the file",
	"store_prompts_in_spend_logs":    "a key has a retention",
	"key_management_system":          "keys are settings, which may be files",
	"key_management_settings":        "keys are settings, which may be files",
}

// sectionReasons are those of whole sections.
var sectionReasons = map[string]string{
	"include":               "the files are not read: import each of them, or copy them into this one",
	"guardrails":            "berth has no guardrails",
	"mcp_servers":           "berth serves no tools",
	"vector_store_registry": "berth has no vector stores",
	"search_tools":          "berth serves no tools",
	"callback_settings":     observes,
	"files_settings":        "berth forwards chats and embeddings only",
	"finetune_settings":     "berth forwards chats and embeddings only",
	"assistant_settings":    "berth forwards chats and embeddings only",
	"agent_list":            "berth forwards chats and embeddings only",
	"policies":              "berth has no guardrails",
	"prompts":               "berth has templates: docs/templates.md",
	"model_access_groups":   access,
	"teams":                 access,
}

// notServed are the modes of models that berth does not serve.
var notServed = []string{
	"completion", "responses", "image_generation", "image_edit", "audio_transcription", "audio_speech", "moderation", "moderations", "rerank", "batch",
	"realtime", "video_generation", "search", "ocr", "vector_store",
}

// why returns the reason for which a setting is not carried.
func why(name string, tables ...map[string]string) string {
	for _, t := range tables {
		if reason := t[name]; reason != "" {
			return reason
		}
	}
	for prefix, reason := range map[string]string{
		"aws_": provides, "vertex_": provides, "watsonx_": provides, "supports_": describes, "redis_": stores, "auto_router_": "berth does not choose models",
		"langfuse_": observes, "disable_end_user_cost": observes, "ui_": access,
	} {
		if strings.HasPrefix(name, prefix) {
			return reason
		}
	}
	if strings.Contains(name, "_cost") {
		return "berth has prices for input, cached input and output"
	}
	return "berth has no counterpart"
}
