package lua

import (
	"strconv"
	"strings"

	"berth"
)

// Keys builds every Redis key and channel of berth; no other file spells one. Cell, when set, is a Redis Cluster hash tag
// before every name, so that all keys of one cell share a slot; without it the names are exactly the documented ones.
type Keys struct{ Cell string }

func (k Keys) name(parts ...string) string {
	s := strings.Join(parts, ":")
	if k.Cell == "" {
		return s
	}
	return "{" + k.Cell + "}:" + s
}

// Channel is the Pub/Sub channel of a task's events. The ids of users are escaped because they may contain colons.
func (k Keys) Channel(userID, serviceID, taskID string) string {
	return k.name("cs", "events", berth.EscapeID(userID), serviceID, taskID)
}

// Stream is the Redis stream of the channel's events.
func (k Keys) Stream(userID, serviceID, taskID string) string {
	return k.Channel(userID, serviceID, taskID) + ":stream"
}

// StreamMeta is the hash of a stream's state, fence and last number.
func (k Keys) StreamMeta(userID, serviceID, taskID string) string {
	return k.Channel(userID, serviceID, taskID) + ":meta"
}

// TasksEnded is the Pub/Sub channel of tasks that were cancelled or timed out. It is a hint for workers: one that misses it
// is fenced at its next append.
func (k Keys) TasksEnded() string { return k.name("cs", "ended") }

// Answer is the answer of a step that the database could not store yet.
func (k Keys) Answer(task berth.TaskRef, step int) string {
	return k.name("cs", "answer", task.String(), strconv.Itoa(step))
}

// AttendedCalls is the sorted set of the calls for which a client waits, scored by when they are abandoned.
func (k Keys) AttendedCalls() string { return k.name("cs", "calls") }

// CallClient is the hash of the client of a call.
func (k Keys) CallClient(call berth.TaskRef) string { return k.name("cs", "client", call.String()) }

// RunningProcesses is the sorted set of the API processes that run, scored by when they are presumed dead.
func (k Keys) RunningProcesses() string { return k.name("cs", "running") }

// Submission is the id of a call of which it is not known whether it was accepted.
func (k Keys) Submission(userID, requestHash string) string {
	return k.name("cs", "submission", berth.EscapeID(userID), requestHash)
}

// prefix begins every key of this cell. The scripts of model slots get it and append the names in include/room.lua.
func (k Keys) prefix() string { return k.name("") }

// ModelHolders is the sorted set of leases on a model's slots, scored by expiry.
func (k Keys) ModelHolders(model string) string { return k.name("model", model, "holders") }

// UpstreamHolders is the sorted set of leases on the slots of one upstream of a model, scored by expiry.
func (k Keys) UpstreamHolders(model, upstream string) string {
	return k.ModelHolders(model) + ":" + upstream
}

// ModelWaiting is the sorted set of leases that wait for the model, scored by expiry: one that is not renewed leaves the room.
func (k Keys) ModelWaiting(model string) string { return k.name("model", model, "waiting") }

// ModelWaiters is the sorted set of the tasks that wait for a model in their workflows, scored by their deadline.
func (k Keys) ModelWaiters(model string) string { return k.name("model", model, "waiter", "waiting") }

// ModelPromoted is the sorted set of the promoted waiters whose workflows are to be signalled, scored by when to do it again.
func (k Keys) ModelPromoted(model string) string { return k.name("model", model, "waiter", "promoted") }

// ModelSignalled is the sorted set of the promoted waiters whose calls are expected, scored by until when.
func (k Keys) ModelSignalled(model string) string {
	return k.name("model", model, "waiter", "signalled")
}

// ModelFlow is the sorted set of a user's leases that wait in one queue for the model, scored by arrival.
func (k Keys) ModelFlow(model string, queue berth.Queue, userID string) string {
	return k.name("model", model, "flow") + ":" + Path{Queue: queue, UserID: userID}.String()
}

// ModelState is the hash of a model's arrival counter and virtual times.
func (k Keys) ModelState(model string) string { return k.name("model", model, "state") }

// ModelLimits is the hash of a model's limits and pauses.
func (k Keys) ModelLimits(model string) string { return k.name("model", model, "limits") }

// ModelBreaker is the hash of an upstream's consecutive failures, and of how often they have paused it since it last worked.
func (k Keys) ModelBreaker(model, upstream string) string {
	return k.name("model", model, "breaker", upstream)
}

// QueueAdmissions is the sorted set of the tasks that are admitted to a queue, scored by expiry.
func (k Keys) QueueAdmissions(queue berth.Queue) string {
	return k.name("queue", string(queue), "admissions")
}

// UserAdmissions is the sorted set of the tasks of a user and service that are admitted to a queue, scored by expiry.
func (k Keys) UserAdmissions(userID, serviceID string) string {
	return k.name("bp", berth.EscapeID(userID), serviceID)
}

// groupAdmissions are the sorted sets of the tasks of a team and of an application, scored by expiry. No user has such an id: EscapeID
// replaces the +.
func (k Keys) groupAdmissions(g Group) (keys []string) {
	if g.Team != "" {
		keys = append(keys, k.name("bp", "+team", berth.EscapeID(g.Team)))
	}
	if g.App != "" {
		keys = append(keys, k.name("bp", "+app", berth.EscapeID(g.App)))
	}
	return keys
}

// Submissions is the sorted set of a user's recent submissions, scored by time.
func (k Keys) Submissions(userID string) string { return k.name("rate", berth.EscapeID(userID)) }

// SubmittedTokens has the time at which no tokens of a user's submissions count any more.
func (k Keys) SubmittedTokens(userID string) string {
	return k.name("rate", berth.EscapeID(userID), "tokens")
}

// Pollers is the sorted set of the task queues of model calls that processes poll, scored by expiry.
func (k Keys) Pollers() string { return k.name("pollers") }

// Sampler is the hash of the process that samples the metrics of the whole system, with an expiry.
func (k Keys) Sampler() string { return k.name("sampler") }

// Levels is the hash of the weights and limits of teams and applications.
func (k Keys) Levels() string { return k.name("slots", "levels") }

// UserSlots is the sorted set of a user's leases on slots of all models, scored by expiry.
func (k Keys) UserSlots(userID string) string { return k.name("slots", "user", berth.EscapeID(userID)) }

// TeamSlots is the sorted set of a team's leases on slots of all models, scored by expiry, where it has a limit.
func (k Keys) TeamSlots(team string) string { return k.name("slots", "team", berth.EscapeID(team)) }

// ProviderSlots is the sorted set of the leases on slots of a provider's models, scored by expiry.
func (k Keys) ProviderSlots(provider string) string { return k.name("slots", "provider", provider) }

// Wake is the Pub/Sub channel of the grants to one process.
func (k Keys) Wake(processID string) string { return k.name("wake", processID) }

// Tick is the Pub/Sub channel on which a listener checks that messages reach it.
func (k Keys) Tick(id string) string { return k.name("tick", id) }

// Guard is the hash that shows whether this Redis is still the one that has every lease.
func (k Keys) Guard() string { return k.name("lease", "guard") }

// Written is the key that checks write.
func (k Keys) Written() string { return k.name("lease", "written") }

// kinds returns a key of each prefix. Nothing is stored in them.
func (k Keys) kinds() []string {
	return []string{
		k.name("cs", "any"), k.name("model", "any"), k.name("queue", "any"), k.name("bp", "any"), k.name("rate", "any"), k.Pollers(), k.Sampler(),
		k.name("slots", "any"), k.stem() + "any", k.Conference("any"), k.Licences(), k.UnitConferences("any"), k.StaleInfo(),
	}
}

// stem is the prefix of the fleet's keys. Scripts get it and append the names in include/fleet.lua, so that derived keys
// stay in the cell.
func (k Keys) stem() string { return k.name("scheduler") + ":" }

// Node is the hash of a registered node.
func (k Keys) Node(nodeID string) string { return k.stem() + "node:runtime:" + nodeID }

// NodePools is the set of a node's pools.
func (k Keys) NodePools(nodeID string) string { return k.Node(nodeID) + ":pools" }

// NodeSlots is the sorted set of leases on a node's slots, scored by expiry.
func (k Keys) NodeSlots(nodeID string) string { return k.stem() + "node:slots:" + nodeID }

// NodeCordon is the hash of the operator settings of a node; it outlasts registrations.
func (k Keys) NodeCordon(nodeID string) string { return k.stem() + "node:cordon:" + nodeID }

// NodeUnavailable is the hash of a node's unavailable services.
func (k Keys) NodeUnavailable(nodeID string) string { return k.stem() + "node:unavailable:" + nodeID }

// NodeBeats is the sorted set of a kind's ready nodes, scored by their last heartbeat.
func (k Keys) NodeBeats(kind string) string { return k.stem() + "node:beats:" + kind }

// NodeSuspects is the sorted set of a kind's suspect nodes, scored by their last heartbeat.
func (k Keys) NodeSuspects(kind string) string { return k.stem() + "node:suspects:" + kind }

// NodesDead is the sorted set of dead nodes, scored by their death; they are kept for an hour.
func (k Keys) NodesDead() string { return k.stem() + "node:dead" }

// NodesDraining is the sorted set of draining nodes, scored by the deadline of their drain.
func (k Keys) NodesDraining() string { return k.stem() + "node:draining" }

// NodeLoads is the hash of the nodes' last loads.
func (k Keys) NodeLoads() string { return k.stem() + "node:loads" }

// Sweep is the hash of the sweep's state: its last run, since when it runs without a gap, and the losses it holds back.
func (k Keys) Sweep() string { return k.stem() + "sweep" }

// Outbox is the sorted set of notices about generations that are not handled yet, scored by when they may be taken.
func (k Keys) Outbox() string { return k.stem() + "outbox" }

// Capabilities is the hash of how many registered nodes have each capability.
func (k Keys) Capabilities() string { return k.stem() + "capabilities" }

// KnownCapabilities is the sorted set of the capabilities that nodes have had, scored by when a node last registered with them.
func (k Keys) KnownCapabilities() string { return k.Capabilities() + ":known" }

// PoolMembers is the set of a pool's nodes.
func (k Keys) PoolMembers(poolID string) string { return k.stem() + "pool:" + poolID + ":members" }

// PoolClasses is the sorted set of the classes of a pool's nodes; see include/fleet.lua. Nodes of a class belong to the same pools,
// declare the same services and have the same unavailable ones.
func (k Keys) PoolClasses(poolID string) string { return k.stem() + "pool:" + poolID + ":classes" }

// PoolOpen is the sorted set of the classes of a pool in which a node can be chosen.
func (k Keys) PoolOpen(poolID string) string { return k.stem() + "pool:" + poolID + ":open" }

// PoolRotation is the class and location of the node that round-robin chose last in a pool.
func (k Keys) PoolRotation(poolID string) string { return k.stem() + "pool:" + poolID + ":rotation" }

// ClassFree is the sorted set of the nodes of a class that can be chosen, scored by load.
func (k Keys) ClassFree(class string) string { return k.class(class, "free") }

// ClassLocations is the sorted set of the nodes of a class that can be chosen, ordered by location.
func (k Keys) ClassLocations(class string) string { return k.class(class, "locations") }

// classState is the hash of the number of a class's nodes by the reason why they are excluded.
func (k Keys) classState(class string) string { return k.class(class, "state") }

// classNodes is the set of all nodes of a class.
func (k Keys) classNodes(class string) string { return k.class(class, "nodes") }

func (k Keys) class(class, what string) string { return k.stem() + "class:" + class + ":" + what }

// Classes is the hash of the pools of each class.
func (k Keys) Classes() string { return k.stem() + "classes" }

// NodeBriefs is the hash of what decisions read about each node. It outlasts Node, which expires.
func (k Keys) NodeBriefs() string { return k.stem() + "node:briefs" }

// NodeServices is the hash of the services that each node declares.
func (k Keys) NodeServices() string { return k.stem() + "node:services" }

// PoolStrategy is the hash of a dynamic pool's current strategy.
func (k Keys) PoolStrategy(poolID string) string { return k.stem() + "pool:" + poolID + ":strategy" }

// PoolSwitches is the list of a dynamic pool's last switches, newest first.
func (k Keys) PoolSwitches(poolID string) string { return k.stem() + "pool:" + poolID + ":switches" }

// Session is the hash of a user's translation session.
func (k Keys) Session(userID, sessionID string) string {
	return k.stem() + "session:" + berth.EscapeID(userID) + ":" + sessionID
}

// Turn is the hash of a turn's affinity. It has no expiry: the turn's end deletes it.
func (k Keys) Turn(turnID string) string { return k.stem() + "turn:" + turnID }

// Job is the JSON of a job.
func (k Keys) Job(jobID string) string { return k.stem() + "job:" + jobID }

// Request is the binding of a session's request and its dispatch number to job and node.
func (k Keys) Request(userID, sessionID, requestID string, dispatch int) string {
	return k.stem() + "request:" + berth.EscapeID(userID) + ":" + sessionID + ":" + requestID + ":" + strconv.Itoa(dispatch)
}

// NodeLeases is the hash of the assignments of leases that do not belong to a job. It is one hash, because a key with an
// expiry for each lease would be the most expensive part of a decision. Rows are deleted with their slots.
func (k Keys) NodeLeases() string { return k.stem() + "leases" }

// WaitingPools is the sorted set of the pools with work that waits for a node, scored by their tags; see include/handover.lua.
func (k Keys) WaitingPools() string { return k.stem() + "waiting" }

// PoolWaiting is the sorted set of the work that waits for a node of a pool, scored by its deadline.
func (k Keys) PoolWaiting(poolID string) string { return k.stem() + "pool:" + poolID + ":room:waiting" }

// WaitingPromoted is the sorted set of the waiters whose workflows have to be signalled, scored by when to do it again.
func (k Keys) WaitingPromoted() string { return k.WaitingPools() + ":promoted" }

// ExcludeStats is the hash of how often nodes were excluded, by pool and reason.
func (k Keys) ExcludeStats() string { return k.stem() + "stats:excludes" }

// ConfigPools is the hash of pools' definitions as JSON.
func (k Keys) ConfigPools() string { return k.stem() + "config:pools" }

// ConfigAnchors is the hash of the defined pools to match with nodes that have a capability.
func (k Keys) ConfigAnchors() string { return k.stem() + "config:anchors" }

// ConfigTenants is the hash of the pools to which tenants are bound.
func (k Keys) ConfigTenants() string { return k.stem() + "config:tenants" }

// ConfigStrategy is the JSON of the fleet's configuration.
func (k Keys) ConfigStrategy() string { return k.stem() + "config:strategy" }

// ConfigServices is the JSON of the services that capabilities require.
func (k Keys) ConfigServices() string { return k.stem() + "config:services" }

// Conference is the hash of a conference's owner, status, start and epoch.
func (k Keys) Conference(e164 string) string { return k.name("confex/" + e164) }

// ConferenceInfo is the hash of a conference's basic data and of its live information, which only the data proxy writes.
func (k Keys) ConferenceInfo(e164 string) string { return k.Conference(e164) + ":info" }

// ConferenceEnded has the last ended conference of a number for some time, so that a late write cannot restore it.
func (k Keys) ConferenceEnded(e164 string) string { return k.Conference(e164) + ":ended" }

// Licences is the set of the numbers of conferences that have a licence.
func (k Keys) Licences() string { return k.name("confex", "licences") }

// units is the prefix of UnitConferences; a script appends {unit}/confs.
func (k Keys) units() string { return k.name("cmu/") }

// UnitConferences is the set of the numbers of a unit's conferences.
func (k Keys) UnitConferences(nodeID string) string { return k.units() + nodeID + "/confs" }

// StaleInfo is the hash of how many messages of each unit the data proxy dropped.
func (k Keys) StaleInfo() string { return k.name("cmu", "stale") }

// ConferenceUpdated is the Pub/Sub channel of the ids of conferences whose status, owner or participants have changed.
func (k Keys) ConferenceUpdated() string { return k.name("confex", "updated") }

// The Pub/Sub channels of the fleet. Messages of the first three, of NodeFree and OutboxFilled are node ids, of SessionUpdated
// routing keys, of JobCreated job ids, of ConfigUpdated what changed: pools, tenants, strategy, services or strategies.

// NodeUpdated has registrations, heartbeats and all other changes of a node.
func (k Keys) NodeUpdated() string { return k.stem() + "node:updated" }

// NodeChanged has the changes of nodes without the heartbeats that only report a load.
func (k Keys) NodeChanged() string { return k.stem() + "node:changed" }

// PoolUpdated has the nodes whose pools changed.
func (k Keys) PoolUpdated() string { return k.stem() + "pool:updated" }

// NodeFree has the nodes that can be chosen again: a hint to retry for work that waits for capacity.
func (k Keys) NodeFree() string { return k.stem() + "node:free" }

// OutboxFilled has the nodes of new notices in the outbox: a hint to read it.
func (k Keys) OutboxFilled() string { return k.stem() + "outbox:filled" }

// SessionUpdated has decided pools and ended turns.
func (k Keys) SessionUpdated() string { return k.stem() + "session:updated" }

// JobCreated has dispatched jobs.
func (k Keys) JobCreated() string { return k.stem() + "job:created" }

// ConfigUpdated has the parts of the configuration that changed.
func (k Keys) ConfigUpdated() string { return k.stem() + "config:updated" }
