package workflows

import (
	"time"

	"berth"
)

// HeldSlot is a slot that a workflow holds.
type HeldSlot struct {
	berth.Assignment
	// Left is for how long the slot is to be held from now.
	Left time.Duration `json:"left,omitempty"`
	// Unresponsive indicates, when the slot is released, that the generation did not accept the work or missed heartbeats
	// while running it.
	Unresponsive bool `json:"unresponsive,omitempty"`
}

// HeldSlots is the argument of ConfirmSlots and ReleaseSlots.
type HeldSlots struct {
	Slots []HeldSlot `json:"slots"`
}

// ConfirmedSlots is the result of ConfirmSlots, in the order of its argument.
type ConfirmedSlots struct {
	Slots []ConfirmedSlot `json:"slots"`
}

// ConfirmedSlot is the state of one slot.
type ConfirmedSlot struct {
	Held       bool  `json:"held,omitempty"`
	Generation int64 `json:"generation,omitempty"` // the node's current generation
}
