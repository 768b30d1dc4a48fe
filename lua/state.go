package lua

import (
	"path"
	"slices"
	"strings"
)

// Owner is who knows a kind of state that Redis has. After Redis lost its data, the state returns from there.
type Owner string

// Owners.
const (
	OwnerDatabase Owner = "database" // its row
	OwnerWorkflow Owner = "workflow" // its run
	OwnerProcess  Owner = "process"  // the memory of an API process or worker
	OwnerNode     Owner = "node"     // the memory of a node or unit
	OwnerClient   Owner = "client"   // the caller of the API
	OwnerNone     Owner = "none"     // it is lost
)

// Names of the kinds of state that the reconciliation restores.
const (
	StateConferences = "rows and licences of conferences"
	StateHeld        = "slots of workflows, and executions that wait"
	StateTasks       = "tasks that wait for a model"
)

// State is one kind of state that Redis has.
type State struct {
	Name  string
	Owner Owner
	// Returns is what restores it after a loss; without an owner, what replaces it.
	Returns string
	// Keys are patterns of its keys, without the cell; * is any text. A key belongs to the kinds with the longest pattern.
	Keys []string
}

// States returns every kind of state that Redis has. Those that the reconciliation restores are in the order in which it does.
func States() []State { return slices.Clone(states) }

var states = []State{
	{
		"settings of operators", OwnerDatabase, "every worker compares them with the rows before it declares a node dead",
		[]string{"scheduler:config:*", "scheduler:node:cordon:*", "scheduler:node:draining", "model:*:limits", "slots:levels"},
	},
	{
		StateConferences, OwnerDatabase, "the reconciliation writes the rows, before other conferences could get the licences",
		[]string{"confex/*", "confex:licences", "cmu/*/confs"},
	},
	{
		StateHeld, OwnerWorkflow, "the reconciliation signals turns, executions and conferences, each of which confirms its own; nodes grant nothing until all are signalled",
		[]string{"scheduler:node:slots:*", "scheduler:leases", "scheduler:node:due", "scheduler:waiting*", "scheduler:pool:*:room:*"},
	},
	{
		StateTasks, OwnerDatabase, "the reconciliation enters those whose step has not begun, in the order of their creation",
		[]string{"model:*:waiter:*"},
	},
	{
		"affinities of turns", OwnerWorkflow, "the turn's next dispatch passes its node",
		[]string{"scheduler:turn:*"},
	},
	{
		"nodes, with their pools", OwnerNode, "the reply to the next heartbeat requests a registration",
		[]string{"scheduler:node:*", "scheduler:pool:*", "scheduler:class*", "scheduler:capabilities*"},
	},
	{
		"calls of models", OwnerProcess, "the process renews all calls that it makes or that wait for a slot, every few seconds; until then nothing is granted",
		[]string{"model:*", "slots:*"},
	},
	{
		"configured limits of models", OwnerProcess, "every call passes them",
		[]string{"model:*:limits"},
	},
	{
		"polled queues and running processes", OwnerProcess, "each process marks them every few seconds",
		[]string{"pollers", "sampler", "scheduler:sweep"},
	},
	{
		"streams of tasks", OwnerProcess, "the writer opens the stream again, if the row permits it, with the full text so far",
		[]string{"cs:events:*"},
	},
	{
		"streams of sessions, conferences and operators", OwnerProcess, "the next event begins a new generation of ids, so that readers receive a `gap`; earlier events are lost",
		[]string{"cs:events:*"},
	},
	{
		"pools of sessions", OwnerDatabase, "the session's next request chooses the pool again, by the row",
		[]string{"scheduler:session:*"},
	},
	{
		"assignments of clients", OwnerClient, "the client's next PUT of the assignment",
		[]string{"scheduler:node:slots:*", "scheduler:leases"},
	},
	{
		"live information of conferences", OwnerNode, "the conference requests a report of the unit that has listed it",
		[]string{"confex/*:info"},
	},
	{
		"guard", OwnerProcess, "the first script finds that it is missing, or older than the process knows, and opens the grace period",
		[]string{"lease:guard"},
	},
	{
		"admissions and rates", OwnerNone, "counting begins at zero; accepted tasks are not affected",
		[]string{"queue:*", "bp:*", "rate:*"},
	},
	{
		"observations", OwnerNone, "failures, marks, rotations and statistics begin again; a node that died is not known",
		[]string{
			"model:*:breaker:*", "scheduler:node:suspects:*", "scheduler:node:dead", "scheduler:node:unavailable:*", "scheduler:node:marks",
			"scheduler:pool:*:rotation", "scheduler:pool:*:strategy", "scheduler:pool:*:switches", "scheduler:stats:*", "cmu:stale",
		},
	},
	{
		"notices and promotions", OwnerNone, "the reconciliation notifies conferences whose unit is not registered; what waits is promoted again",
		[]string{"scheduler:outbox", "scheduler:waiting:promoted"},
	},
	{
		"bindings of jobs", OwnerNone, "the turn's workflow recognises repeated requests itself",
		[]string{"scheduler:job:*", "scheduler:request:*"},
	},
	{
		"answers that the database could not store", OwnerNone, "the worker that has it stores it; without that worker the step is repeated",
		[]string{"cs:answer:*"},
	},
	{
		"clients that wait for calls", OwnerProcess, "the process that has the connection notes it every few seconds; a call without one is not cancelled",
		[]string{"cs:calls", "cs:client:*", "cs:running"},
	},
	{
		"calls that may have been accepted", OwnerNone, "a retry of the client is another call",
		[]string{"cs:submission:*"},
	},
	{
		"marks of ended conferences, written checks", OwnerNone, "they only reject what is late",
		[]string{"confex/*:ended", "lease:written"},
	},
}

// StatesOf returns the kinds of state to which a key belongs.
func (k Keys) StatesOf(key string) (of []State) {
	longest := 0
	for _, s := range states {
		for _, pattern := range s.Keys {
			if !k.matches(pattern, key) || len(pattern) < longest {
				continue
			}
			if len(pattern) > longest {
				of, longest = nil, len(pattern)
			}
			of = append(of, s)
		}
	}
	return of
}

// matches reports whether a key has the name of a pattern of State.Keys.
func (k Keys) matches(pattern, key string) bool {
	plain := strings.NewReplacer("/", "|") // a * of path.Match matches no slash
	ok, err := path.Match(plain.Replace(pattern), plain.Replace(strings.TrimPrefix(key, k.prefix())))
	return ok && err == nil
}
