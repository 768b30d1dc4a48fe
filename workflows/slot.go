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
