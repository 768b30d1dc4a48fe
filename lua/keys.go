package lua

import (
	"strconv"
	"strings"
)

// Keys builds every Redis key and channel of berth; no other file spells one.
// Cell, when set, is a Redis Cluster hash tag put before every name, so that all keys of one cell
// share a slot; without it the names are exactly the documented ones (L2).
type Keys struct{ Cell string }

func (k Keys) name(parts ...string) string {
	s := strings.Join(parts, ":")
	if k.Cell == "" {
		return s
	}
	return "{" + k.Cell + "}:" + s
}

// Channel is the Pub/Sub channel of a task's events (T12).
func (k Keys) Channel(userID, serviceID, taskID string) string {
	return k.name("cs", "events", userID, serviceID, taskID)
}

// Stream is the Redis stream that keeps the channel's events (T12).
func (k Keys) Stream(userID, serviceID, taskID string) string {
	return k.Channel(userID, serviceID, taskID) + ":stream"
}

// StreamMeta is the hash that says whether the stream is open, at which fence, and its last number (T13).
func (k Keys) StreamMeta(userID, serviceID, taskID string) string {
	return k.Channel(userID, serviceID, taskID) + ":meta"
}

// TasksEnded is the Pub/Sub channel on which workers hear of tasks that were cancelled or timed out. A hint
// only: whoever misses it is refused at its next append.
func (k Keys) TasksEnded() string { return k.name("cs", "ended") }

// ModelHolders is the sorted set of leases on a model's concurrent calls, scored by expiry (L7, T4).
func (k Keys) ModelHolders(model string) string { return k.name("model", model, "holders") }

// ModelWaiters is the sorted set of those who wait for the model, in the order they will be served.
func (k Keys) ModelWaiters(model string) string { return k.name("model", model, "waiters") }

// ModelWaiting is the sorted set of the same waiters scored by expiry: who is not renewed is skipped.
func (k Keys) ModelWaiting(model string) string { return k.name("model", model, "waiting") }

// ModelState is the hash of a model's arrival counter and, later, its pause.
func (k Keys) ModelState(model string) string { return k.name("model", model, "state") }

// Wake is the Pub/Sub channel on which one process hears that a lease was granted to it.
func (k Keys) Wake(processID string) string { return k.name("wake", processID) }

// Guard is the hash that tells whether this Redis still is the one that knows every lease (L12).
func (k Keys) Guard() string { return k.name("lease", "guard") }

// stem is what the names of the fleet's keys begin with. Scripts get it and append what include/fleet.lua lists, so
// that derived keys stay in the cell.
func (k Keys) stem() string { return k.name("scheduler") + ":" }

// Node is the hash of a registered node (L2).
func (k Keys) Node(nodeID string) string { return k.stem() + "node:runtime:" + nodeID }

// NodePools is the set of a node's pools (L2).
func (k Keys) NodePools(nodeID string) string { return k.Node(nodeID) + ":pools" }

// NodeSlots is the sorted set of leases on a node's slots, scored by expiry (L7).
func (k Keys) NodeSlots(nodeID string) string { return k.stem() + "node:slots:" + nodeID }

// NodesDue is the sorted set of nodes by a time at which one of their leases may have expired.
func (k Keys) NodesDue() string { return k.stem() + "node:due" }

// NodeHold is the hash of the operator's orders for a node (S11): it outlives registrations.
func (k Keys) NodeHold(nodeID string) string { return k.stem() + "node:hold:" + nodeID }

// NodeUnavailable is the hash of a node's unavailable services (L10).
func (k Keys) NodeUnavailable(nodeID string) string { return k.stem() + "node:unavailable:" + nodeID }

// NodeBeats is the sorted set of a kind's living nodes by their last heartbeat.
func (k Keys) NodeBeats(kind string) string { return k.stem() + "node:beats:" + kind }

// NodeSuspects is the sorted set of a kind's suspects by their last heartbeat.
func (k Keys) NodeSuspects(kind string) string { return k.stem() + "node:suspects:" + kind }

// NodesDead is the sorted set of dead nodes by their death; they are kept for an hour.
func (k Keys) NodesDead() string { return k.stem() + "node:dead" }

// NodesDraining is the sorted set of nodes by the deadline of their drain.
func (k Keys) NodesDraining() string { return k.stem() + "node:draining" }

// Sweep is the hash of what the sweep remembers: when it ran last, since when it sees, what it holds back.
func (k Keys) Sweep() string { return k.stem() + "sweep" }

// Outbox is the sorted set of what befell generations and nobody has taken up yet, scored by when it may be taken.
func (k Keys) Outbox() string { return k.stem() + "outbox" }

// Capabilities is the index of capabilities: how many living nodes have each (L2).
func (k Keys) Capabilities() string { return k.stem() + "capabilities" }

// PoolMembers is the set of a pool's nodes (L2).
func (k Keys) PoolMembers(poolID string) string { return k.stem() + "pool:" + poolID + ":members" }

// PoolFree is the sorted set of a pool's nodes that can be chosen, by load.
func (k Keys) PoolFree(poolID string) string { return k.stem() + "pool:" + poolID + ":free" }

// PoolRing is the sorted set of a pool's nodes by their last turn.
func (k Keys) PoolRing(poolID string) string { return k.stem() + "pool:" + poolID + ":ring" }

// PoolPlaces is the sorted set of a pool's nodes that can be chosen, by zone and host.
func (k Keys) PoolPlaces(poolID string) string { return k.stem() + "pool:" + poolID + ":places" }

// PoolState is the hash of a pool's turn and of its nodes by why they are passed over.
func (k Keys) PoolState(poolID string) string { return k.stem() + "pool:" + poolID + ":state" }

// PoolStrategy is the hash of a dynamic pool's strategy now (S7).
func (k Keys) PoolStrategy(poolID string) string { return k.stem() + "pool:" + poolID + ":strategy" }

// PoolSwitches is the list of a dynamic pool's last switches, newest first (S7).
func (k Keys) PoolSwitches(poolID string) string { return k.stem() + "pool:" + poolID + ":switches" }

// Session is the hash of a user's live translation (L2).
func (k Keys) Session(sessionID string) string { return k.stem() + "session:" + sessionID }

// Turn is the hash of a turn's affinity (A2). It has no expiry: the turn's end deletes it.
func (k Keys) Turn(turnID string) string { return k.stem() + "turn:" + turnID }

// Job is the JSON of a job (L2).
func (k Keys) Job(jobID string) string { return k.stem() + "job:" + jobID }

// Request is the binding of a session's request and its dispatch number to job and node (L6).
func (k Keys) Request(sessionID, requestID string, dispatch int) string {
	return k.stem() + "request:" + sessionID + ":" + requestID + ":" + strconv.Itoa(dispatch)
}

// NodeLeases is the hash of what leases that belong to no job were given: one hash, for a key of its own with an expiry
// of its own is the dearest part of a decision. Rows go with their slots.
func (k Keys) NodeLeases() string { return k.stem() + "leases" }

// ExcludeStats is the hash of how often nodes were passed over, by pool and reason (L9).
func (k Keys) ExcludeStats() string { return k.stem() + "stats:excludes" }

// ConfigPools is the hash of pools' definitions as JSON (L8).
func (k Keys) ConfigPools() string { return k.stem() + "config:pools" }

// ConfigAnchors is the hash of which defined pools to look at for a node's capability.
func (k Keys) ConfigAnchors() string { return k.stem() + "config:anchors" }

// ConfigTenants is the hash of the pools that tenants are bound to (L5, L8).
func (k Keys) ConfigTenants() string { return k.stem() + "config:tenants" }

// ConfigStrategy is the JSON of how work is assigned (S6, L8).
func (k Keys) ConfigStrategy() string { return k.stem() + "config:strategy" }

// ConfigServices is the JSON of the core services (L8).
func (k Keys) ConfigServices() string { return k.stem() + "config:services" }

// Conference is the hash of a conference's owner, status, start and epoch (C12).
func (k Keys) Conference(e164 string) string { return k.name("confex/" + e164) }

// ConferenceInfo is the hash of a conference's basic data and live information, which the data proxy alone writes (C20).
func (k Keys) ConferenceInfo(e164 string) string { return k.Conference(e164) + ":info" }

// ConferenceEnded tells for a while which conference of a number was over last, so that no late write brings it back (C17).
func (k Keys) ConferenceEnded(e164 string) string { return k.Conference(e164) + ":over" }

// Licences is the set of the numbers of conferences that have a licence (C22).
func (k Keys) Licences() string { return k.name("confex", "licences") }

// units is what the names of UnitConferences begin with; a script appends {unit}/confs.
func (k Keys) units() string { return k.name("cmu/") }

// UnitConferences is the set of the numbers of a unit's conferences (C12).
func (k Keys) UnitConferences(nodeID string) string { return k.units() + nodeID + "/confs" }

// StaleInfo is the hash of how many messages of each unit the data proxy dropped (C20).
func (k Keys) StaleInfo() string { return k.name("cmu", "stale") }

// The Pub/Sub channels of the fleet. Messages of the first two, of NodeFree and OutboxFilled are node ids, of SessionUpdated
// routing keys, of JobCreated job ids, of ConfigUpdated what changed: pools, tenants, strategy, services or strategies.

// NodeUpdated tells of registrations, heartbeats and everything else that changed a node (L3).
func (k Keys) NodeUpdated() string { return k.stem() + "node:updated" }

// PoolUpdated tells whose pools changed (L4).
func (k Keys) PoolUpdated() string { return k.stem() + "pool:updated" }

// NodeFree tells of nodes that can be chosen again: who waits for room tries then. A hint only.
func (k Keys) NodeFree() string { return k.stem() + "node:free" }

// OutboxFilled tells that something befell a generation: who takes up the outbox looks then. A hint only.
func (k Keys) OutboxFilled() string { return k.stem() + "outbox:filled" }

// SessionUpdated tells of decided pools and ended turns (L5).
func (k Keys) SessionUpdated() string { return k.stem() + "session:updated" }

// JobCreated tells of dispatched jobs (L6).
func (k Keys) JobCreated() string { return k.stem() + "job:created" }

// ConfigUpdated tells which part of the configuration changed (L8).
func (k Keys) ConfigUpdated() string { return k.stem() + "config:updated" }
