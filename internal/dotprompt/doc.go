// Package dotprompt compiles prompts in the dotprompt format (https://google.github.io/dotprompt/): YAML front matter, and a body in a subset of
// Handlebars that is rendered to messages.
//
// A prompt is code, a value is not. Messages are assembled from what the body calls, never from what was rendered: no value can begin a
// message, have a role or become an image, and nothing is escaped. Everything that a body may use is known when it is compiled: partials,
// helpers, names and roles are literals. Rendering is bounded in time, steps and output. A compiled prompt is immutable.
package dotprompt
