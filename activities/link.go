package activities

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/activity"

	"berth"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// Links looks after what the fleet's changes mean for open workflows.
type Links struct {
	Starter *starter.Starter
	Ledger  *ledger.Ledger
	Scripts *lua.Scripts
	Logger  *slog.Logger
}

// signalsAtOnce is how many conferences of a unit are reconciled at the same time.
const signalsAtOnce = 32

// signalled is how far SignalOpen has come.
type signalled struct {
	Page  []byte // token of the next page
	Count int
}

// SignalOpen signals every open workflow to put back what it holds (L12). Tried again, it goes on at the page it had come
// to; a workflow that is signalled twice does no harm.
func (l *Links) SignalOpen(ctx context.Context, in workflows.ReassertInput) error {
	var done signalled
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &done); err != nil {
			done = signalled{}
		}
	}
	for {
		next, n, err := l.Starter.SignalSlotHolders(ctx, done.Page, workflows.SignalReassert)
		if err != nil {
			return again(berth.CodeUnavailable, "the open workflows cannot be signalled", 0, err)
		}
		done.Page, done.Count = next, done.Count+n
		if len(done.Page) == 0 {
			break
		}
		activity.RecordHeartbeat(ctx, done)
	}
	l.Logger.InfoContext(ctx, "open workflows were told to put back what they hold", "workflows", done.Count, "graceUntil", in.GraceUntil)
	return nil
}
