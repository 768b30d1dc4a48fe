package activities

import (
	"context"
	"log/slog"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
	"berth/workflows"
)

// Executions are the side effects of executions.
type Executions struct {
	Scripts *lua.Scripts
	Fleet   *fleet.Fleet
	Logger  *slog.Logger
}

// AssignNode chooses a node and takes a slot.
func (e *Executions) AssignNode(context.Context, workflows.AssignInput) (berth.Assignment, error) {
	return berth.Assignment{}, nil
}
