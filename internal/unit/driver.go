package unit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"berth"
)

// Driver controls one media server. Its callers enforce the rules of epochs and make one call at a time per number.
// Calls return when their context ends.
type Driver interface {
	// Check returns *Misconfigured if the server's own configuration lets its participants create rooms.
	Check(ctx context.Context) error
	// Incarnation identifies the current run of the media server; every run has its own. The first call of a run may
	// leave a mark on the server.
	Incarnation(ctx context.Context) (berth.Incarnation, error)
	// Watch returns when a connection to the server has ended, as it does when the server's process dies, or could not be
	// established. The caller then probes the server.
	Watch(ctx context.Context)
	// Fence ends all copies of this unit. The server's incarnation is then another one, as after a restart.
	Fence(ctx context.Context) error
	// List returns the conferences that the server runs for this unit, and the incarnation of the server.
	List(ctx context.Context) (berth.Incarnation, []Copy, error)
	// Find returns the copy of a conference; ok is false if there is none. ErrForeign: another unit uses the number there.
	Find(ctx context.Context, e164 string) (c Copy, ok bool, err error)
	// Create starts a conference whose number is free. It stays while it has participants, and for EmptyAfterMs without; a
	// returning one, whose participants are expected, does not end before one has joined.
	Create(ctx context.Context, c berth.UnitConference, returning bool) error
	// Mark writes another owner's epoch, start and end time of a copy. The next Find and List return them.
	Mark(ctx context.Context, c Copy) error
	// Delete ends a copy; it is idempotent.
	Delete(ctx context.Context, e164 string) error
	// Live returns the live information of a copy. Equal states have equal bytes.
	Live(ctx context.Context, e164 string) (Live, error)
}

// Copy is a conference on the media server.
type Copy struct {
	berth.UnitCopy
	// EndAt is when the conference ends.
	EndAt time.Time `json:"endAt,omitzero"`
	// Participants is their number; it may be a few seconds old.
	Participants int `json:"participants"`
	// Metadata are what an application has written to the room.
	Metadata string `json:"-"`
}

// Live is the live information of a conference by its top-level fields. The set of fields is fixed: a change is reported as
// the fields that changed.
type Live map[string]json.RawMessage

// ErrForeign is the error of Find for a room that another unit, or no unit, created.
var ErrForeign = errors.New("the media server has a room of this number that is not the unit's")

// ErrStopped is the error of a call to a media server whose host reports that no process accepts connections.
var ErrStopped = errors.New("the media server has stopped")

// ErrUnresponsive is the error of a driver that simulates a dead unit: the unit stops without withdrawing.
var ErrUnresponsive = errors.New("simulated unresponsive unit")

// Refusal is the error of a refused command: nothing was started, so that another unit may run it.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Misconfigured is a permanent error: the server's address or key is wrong.
type Misconfigured struct{ Reason string }

func (m *Misconfigured) Error() string { return m.Reason }
