// Package llm knows which model serves which template (routing.yaml), what the models are asked (prompts), what
// shape their answers must have (schemas), and how they are called: one client for every server that speaks the
// OpenAI chat-completions protocol (T1, T2, T9, T10, T21-T23, T27).
//
// Nothing here waits for capacity, retries, or writes anywhere: the activities do.
package llm
