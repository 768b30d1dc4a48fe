// Package berth holds the domain types of a durable dispatcher for scarce capacity: tasks, turns, conferences, nodes,
// their events, and the error codes of the HTTP API. It imports the standard library only; every other package may
// import it.
//
// docs/architecture.md defines the terms.
package berth
