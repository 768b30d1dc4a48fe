// Package llm routes templates to models (routing.yaml), renders their prompts, validates their output against JSON
// schemas, and calls models: one client for all servers that implement the OpenAI chat-completions protocol.
//
// It neither waits for capacity nor retries nor stores anything: the activities do.
package llm
