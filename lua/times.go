package lua

import "time"

// The times of leases, and of the sweep that ends them. All processes of a cell use the same, so they are constants.
const (
	// ModelLease is how long a lease on a model's slot lasts without renewal. Package lease renews it three times within that.
	ModelLease = 5 * time.Second
	// ModelGrant is how long a model's slot stays reserved for a waiter that does not claim it.
	ModelGrant = ModelLease / 5

	// NodeGrace is how long nothing is granted on nodes after Redis lost data or was replaced: within it ConfirmNodeSlot
	// restores the slots of their holders. Model slots share its guard, so it is the time of their leases.
	NodeGrace = ModelLease
	// MaxNodeGrace is how long that lasts at most where many holders have to be notified.
	MaxNodeGrace = time.Minute
	// NodeUnsure is how long a node gets no new leases after it has registered as one that Redis does not know, perhaps
	// after the grace: within it ConfirmNodeSlot restores its slots. Their holders try once a second. Translating nodes
	// register within 5 s of the loss, so that everything is normal again within 10 s.
	NodeUnsure = 3 * time.Second
	// Unconfirmed is how long a node's slot is held for work that was not confirmed.
	Unconfirmed = 5 * time.Second

	// HeartbeatMargin is how late a heartbeat may be before a report that its node is unresponsive is accepted.
	HeartbeatMargin = time.Second
	// MaxSweepGap is the time without a sweep, or without an API process that accepts heartbeats, after which a missed
	// heartbeat proves nothing about a node: the time of heartbeats then counts from the next sweep.
	MaxSweepGap = 3 * time.Second
	// ListeningEvery is how often an API process calls MarkListening.
	ListeningEvery = MaxSweepGap / 3
	// MassLossDelay is how long a mass loss of nodes is held back.
	MassLossDelay = 30 * time.Second
)
