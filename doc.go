// Package berth holds the nouns of a durable dispatcher for scarce capacity: tasks, steps, events,
// and the error codes its HTTP API answers with. It imports the standard library only, and
// every other package of the house may import it.
//
// Words follow the glossary of docs/architecture.md. Ids such as T4 name the requirement a rule comes from.
package berth
