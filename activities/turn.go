package activities

import (
	"context"
	"log/slog"
	"time"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
	"berth/workflows"
)

// Turns are the side effects of turns.
type Turns struct {
	Scripts *lua.Scripts
	Fleet   *fleet.Fleet
	Logger  *slog.Logger
	// StreamTTL is how long a session's stream is kept after its last event, StreamTrim about how many events it has.
	StreamTTL  time.Duration
	StreamTrim int64
}

// DispatchJob decides a job's node and takes its slot.
func (t *Turns) DispatchJob(context.Context, workflows.DispatchInput) (berth.Assignment, error) {
	return berth.Assignment{}, nil
}
