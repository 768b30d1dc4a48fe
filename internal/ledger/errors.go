package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"berth"
)

// Reasons why a write is rejected. The first two are wrapped in a berth.Error with CodeConflict.
var (
	// ErrStale: a newer attempt owns the task.
	ErrStale = errors.New("a newer attempt owns the task")
	// ErrFinal: the task has ended.
	ErrFinal = errors.New("the task has ended")
	// ErrNoTask, with CodeNotFound: the task has no row. An accepted task has one until it has ended, unless an older database was
	// restored.
	ErrNoTask = errors.New("the task has no row")
)

func stale() error {
	return berth.Errorf(berth.CodeConflict, "a newer attempt is running").With(ErrStale)
}
func final() error { return berth.Errorf(berth.CodeConflict, "already ended").With(ErrFinal) }

// translate adds a berth.Code to the errors of the database drivers.
func translate(what string, err error) error {
	var known *berth.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", what, berth.Errorf(berth.CodeNotFound, "not found").With(err))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, berth.Errorf(berth.CodeUnavailable, "the call was cancelled").With(err))
	}
	if p := Diagnose(err); p != nil && !slices.Contains(internal, p.Reason) {
		return fmt.Errorf("%s: %w", what, berth.Errorf(berth.CodeUnavailable, "database unavailable; retry").With(p))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// storableID reports whether an id can be stored.
func storableID(id string) bool { return id != "" && plain(id) == id }
