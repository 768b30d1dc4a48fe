// Package llm contains the routing of templates to models (routing.yaml), the prompts and the schemas of answers, and a
// client for every server that speaks the OpenAI chat-completions protocol.
//
// The package does not wait for capacity, retry or store anything; the activities do.
package llm
