package fleet

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/health"
)

const (
	// noticePage is the number of notices taken from the outbox per call, concurrentNotices how many are delivered concurrently.
	noticePage        = 200
	concurrentNotices = 16
)

// tracer begins the trace of a recovery: it starts with the notice of a node's loss, not with a request.
var tracer = otel.Tracer("berth/fleet")

// grace is the time after a loss of data during which Redis grants nothing.
type grace struct {
	until  time.Time
	ended  bool
	recent bool // OnGrace is to be called
}

// reportGrace replaces the grace that deliver has not handled yet.
func (s *Sweeper) reportGrace(g grace) {
	select {
	case <-s.graces:
	default:
	}
	s.graces <- g
}

// deliver calls Restore, OnGrace and OnNotice until ctx ends.
func (s *Sweeper) deliver(ctx context.Context) {
	tick := time.NewTicker(s.opt.Every)
	defer tick.Stop()
	graces := outage{logger: s.opt.Logger, task: "recovery after a grace", after: 1}
	// While Redis is unavailable the sweep logs it: here only failures between successful sweeps are counted.
	outbox := outage{logger: s.opt.Logger, task: "outbox", of: health.Redis, after: 3}
	failedAt := int64(-1)
	var due *grace
	var delivered time.Time
	for {
		if due != nil {
			err := s.recover(ctx, *due, &delivered)
			graces.note(ctx, err)
			if err == nil {
				due = nil
			}
		}
		if s.sweeps.Load() != failedAt {
			err := s.emptyOutbox(ctx)
			outbox.note(ctx, err)
			if failedAt = -1; err != nil {
				failedAt = s.sweeps.Load()
			}
		}
		select {
		case g := <-s.graces:
			due = &g
			if !g.ended && !g.until.Equal(delivered) {
				s.opt.Logger.WarnContext(ctx, "Redis is new or may have lost data: assignment is suspended", "until", g.until)
			}
		case <-tick.C:
		case <-s.filled:
		case <-ctx.Done():
			return
		}
	}
}

// recover restores what Redis may have lost: the settings first, because nodes register by them. delivered is the last grace
// that OnGrace has handled.
func (s *Sweeper) recover(ctx context.Context, g grace, delivered *time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	if s.opt.Restore != nil {
		if err := s.opt.Restore(ctx); err != nil {
			return err
		}
		s.restored.Store(g.until.UnixMilli())
	}
	if g.recent && !g.until.Equal(*delivered) {
		if s.opt.OnGrace != nil {
			if err := s.opt.OnGrace(ctx, g.until); err != nil {
				return err
			}
		}
		*delivered = g.until
	}
	return nil
}

// emptyOutbox delivers every notice of the outbox. A notice whose delivery failed stays there, for any process to retry.
func (s *Sweeper) emptyOutbox(ctx context.Context) error {
	var receipts []string
	for ctx.Err() == nil {
		takeCtx, cancel := context.WithTimeout(ctx, sweepTimeout)
		notices, _, err := s.fleet.scripts.TakeOutbox(takeCtx, noticePage, 2*s.opt.Every, receipts...)
		cancel()
		if err != nil {
			return err
		}
		receipts = nil
		for i, err := range s.deliverNotices(ctx, notices) {
			if err == nil {
				receipts = append(receipts, notices[i].Receipt)
				continue
			}
			s.opt.Logger.WarnContext(ctx, "node notice not handled", "node", notices[i].NodeID, "generation", notices[i].Generation,
				"reason", notices[i].Reason, "error", err)
		}
		if len(receipts) == 0 { // no notices, or a dependency of OnNotice is unavailable
			return nil
		}
	}
	return ctx.Err()
}

// deliverNotices calls OnNotice for notices, several concurrently, and returns the error of each.
func (s *Sweeper) deliverNotices(ctx context.Context, notices []berth.NodeNotice) []error {
	out := make([]error, len(notices))
	var g errgroup.Group
	g.SetLimit(concurrentNotices)
	for i, n := range notices {
		g.Go(func() error {
			s.opt.Logger.InfoContext(ctx, "node notice", "node", n.NodeID, "generation", n.Generation, "kind", n.Kind,
				"reason", n.Reason, "at", n.At)
			if s.opt.OnNotice != nil {
				callCtx, cancel := context.WithTimeout(ctx, callbackTimeout)
				defer cancel()
				callCtx, span := tracer.Start(callCtx, "node "+string(n.Reason), trace.WithAttributes(
					attribute.String("berth.node.id", n.NodeID), attribute.String("berth.node.kind", string(n.Kind))))
				defer span.End()
				out[i] = s.opt.OnNotice(callCtx, n)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in out
	return out
}
