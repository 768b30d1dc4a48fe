package unit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"berth"
)

// Driver commands one media server. The rules of epochs are above it: it is told plain things, one at a time for each
// number. Calls end with their context.
type Driver interface {
	// Incarnation names the run of the media server that answers now, so that the next one has another (C14). The first
	// call of a run may leave a mark there.
	Incarnation(ctx context.Context) (berth.Incarnation, error)
	// List is what the server runs for this unit, as it tells itself, and which run of it said so.
	List(ctx context.Context) (berth.Incarnation, []Copy, error)
	// Find is the copy of a conference; ok is false when there is none. ErrForeign: the number is in use there by somebody
	// else.
	Find(ctx context.Context, e164 string) (c Copy, ok bool, err error)
	// Create starts a conference; there is none of its number. It stays until its end time, also without anybody in it.
	Create(ctx context.Context, c berth.UnitConference) error
	// Mark writes another owner's epoch and start on a copy. The next Find and List have it.
	Mark(ctx context.Context, c berth.UnitCopy) error
	// Delete ends a copy; none is fine.
	Delete(ctx context.Context, e164 string) error
	// Live is what is known of a copy now. The same state makes the same bytes.
	Live(ctx context.Context, e164 string) (Live, error)
}

// Copy is a conference on the media server.
type Copy struct {
	berth.UnitCopy
	// Participants is how many take part; it may lag a few seconds behind.
	Participants int `json:"people"`
}

// Live is the live information of a conference, by its top-level fields. They are always the same ones: a change is told
// as the fields that changed.
type Live map[string]json.RawMessage

// ErrForeign is the error of Find for a room that no unit made, or another one.
var ErrForeign = errors.New("a room of this number is there and is not the unit's")

// ErrUnresponsive is the error of a driver that plays dead: the unit falls silent instead of withdrawing.
var ErrUnresponsive = errors.New("the unit is silent")

// Refusal is an error that a command is refused for: nothing was begun, and another unit may do it.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Misconfigured is an error that no waiting mends: the server's address or key is wrong.
type Misconfigured struct{ Reason string }

func (m *Misconfigured) Error() string { return m.Reason }
