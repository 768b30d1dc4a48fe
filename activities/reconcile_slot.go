package activities

import (
	"context"
	"strings"
	"time"

	"berth"
	"berth/workflows"
)

// leaseOwner returns the key of the execution, or the id of the conference, in a lease; ok is false for an assignment, which has no run and expires.
// The slots of a turn's jobs expire within the time of a job.
func leaseOwner(leaseID string) (prefix, id string, ok bool) {
	for _, prefix := range []string{workflows.ExecutionPrefix, workflows.ConferencePrefix} {
		if rest, is := strings.CutPrefix(leaseID, prefix); is {
			if i := strings.LastIndexByte(rest, ':'); i > 0 {
				return prefix, rest[:i], true
			}
		}
	}
	return "", "", false
}

// fullSlots considers the slots of executions and conferences that are not known to be open.
func (p *pass) fullSlots(ctx context.Context) error {
	return p.slots(ctx, func(prefix, id string) bool {
		if prefix == workflows.ExecutionPrefix {
			return !p.listed(workflows.ExecutionWorkflowID(id))
		}
		_, open := p.open[id]
		return !open
	})
}

// slotsOfEnded considers the slots of workflows that were ended from outside.
func (p *pass) slotsOfEnded(ctx context.Context, ended map[string]struct{}) error {
	conferences := map[string]struct{}{}
	for id := range ended {
		if !strings.HasPrefix(id, workflows.ConferencePrefix) {
			continue
		}
		c, ok, err := p.r.conference(ctx, id)
		if err != nil {
			return err
		}
		if ok {
			conferences[c.ID] = struct{}{}
		}
	}
	return p.slots(ctx, func(prefix, id string) bool {
		if prefix == workflows.ConferencePrefix {
			_, is := conferences[id]
			return is
		}
		_, is := ended[workflows.ExecutionWorkflowID(id)]
		return is
	})
}

// slots considers the slots that executions and conferences hold, if they may differ.
func (p *pass) slots(ctx context.Context, mayDiffer func(prefix, id string) bool) error {
	return p.r.Scripts.Leases(ctx, func(leases []string) error {
		for _, lease := range leases {
			if prefix, id, ok := leaseOwner(lease); !ok || !mayDiffer(prefix, id) {
				continue
			}
			if err := p.candidate(ctx, berth.RuleSlotWithoutRun, lease); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Reconciler) slotWithoutRun(ctx context.Context, lease string) (version int64, differs bool, err error) {
	prefix, id, ok := leaseOwner(lease)
	if !ok {
		return 0, false, nil
	}
	var used bool
	if prefix == workflows.ExecutionPrefix {
		used, err = r.runs(ctx, workflows.ExecutionWorkflowID(id))
	} else {
		used, err = r.conferenceOpen(ctx, id)
	}
	if err != nil || used {
		return 0, false, err
	}
	a, ok, err := r.Scripts.FindLease(ctx, lease)
	if err != nil || !ok {
		return 0, false, err
	}
	until, err := r.Scripts.HeldUntil(ctx, a.NodeID, lease)
	return a.Generation, time.Until(until) > 0, err
}

// conferenceOpen reports whether a conference has not ended, or its run has not completed its end.
func (r *Reconciler) conferenceOpen(ctx context.Context, id string) (bool, error) {
	c, ok, err := berth.Found(r.Ledger.GetConference(ctx, id))
	if err != nil || !ok || !c.Status.Final() {
		return true, err // one without a row is being created, or is found by its run
	}
	last, err := r.Ledger.FindConference(ctx, c.E164)
	if err != nil || last.ID != id {
		return false, err
	}
	return r.runs(ctx, workflows.ConferenceWorkflowID(last.E164))
}

func (r *Reconciler) releaseSlot(ctx context.Context, f berth.ReconcileFinding) error {
	a, ok, err := r.Scripts.FindLease(ctx, f.Subject)
	if err != nil || !ok {
		return err
	}
	_, err = r.Scripts.ReleaseNodeSlot(ctx, a.NodeID, f.Subject)
	return err
}
