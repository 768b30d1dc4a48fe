package activities

import (
	"cmp"
	"context"
	"hash/fnv"
	"strings"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/workflows"
)

// numberOf returns the number of a conference's workflow id.
func numberOf(workflowID string) string {
	return strings.TrimPrefix(workflowID, workflows.ConferencePrefix)
}

// conference returns the last conference of a number; ok is false when it never had one.
func (r *Reconciler) conference(ctx context.Context, workflowID string) (c berth.Conference, ok bool, err error) {
	return berth.Found(r.Ledger.FindConference(ctx, numberOf(workflowID)))
}

// unchanged returns the conference of a finding; ledger.ErrStale if it has changed since.
func (r *Reconciler) unchanged(ctx context.Context, f berth.ReconcileFinding) (berth.Conference, error) {
	c, _, err := r.conference(ctx, f.Subject)
	if err == nil && c.Revision != f.Version {
		err = ledger.ErrStale
	}
	return c, err
}

// closedConference considers the conference of a run that has closed.
func (p *pass) closedConference(ctx context.Context, workflowID string) error {
	c, ok, err := p.r.conference(ctx, workflowID)
	if err != nil || !ok || c.Status.Final() {
		return err
	}
	return p.candidate(ctx, berth.RuleConferenceWithoutRun, workflowID)
}

// openConferences compares the open conferences with their runs.
func (p *pass) openConferences(ctx context.Context) error {
	return p.compareOpen(ctx, workflows.ConferenceWorkflow, berth.RuleConferenceWithoutRun, berth.RuleRunWithoutConference,
		func(each func(string) error) error {
			return eachRow(ctx, func(after berth.Conference) ([]berth.Conference, error) {
				return p.r.Ledger.OpenConferences(ctx, after.ID, reconcilePage)
			}, func(c berth.Conference) error {
				p.open[c.ID] = struct{}{}
				return each(workflows.ConferenceWorkflowID(c.E164))
			})
		})
}

// owners compares the owners of conferences with the registered units.
func (p *pass) owners(ctx context.Context) error {
	owners, err := p.r.Ledger.OwnerGenerations(ctx)
	if err != nil {
		return err
	}
	ids := make([]string, 0, len(owners))
	for _, o := range owners {
		ids = append(ids, o.NodeID)
	}
	units, err := p.r.Scripts.ReadNodes(ctx, ids...)
	if err != nil {
		return err
	}
	for _, o := range owners {
		if liveGeneration(units[o.NodeID]) == o.Generation {
			continue
		}
		rows, err := p.r.Ledger.ConferencesOf(ctx, o.NodeID)
		if err != nil {
			return err
		}
		for _, c := range rows {
			if liveGeneration(units[o.NodeID]) == c.Owner.Generation {
				continue
			}
			if err := p.candidate(ctx, berth.RuleOwnerNotLive, workflows.ConferenceWorkflowID(c.E164)); err != nil {
				return err
			}
		}
	}
	return nil
}

// listUnits requests the lists of units that are due, which each is once in the time between two full passes: one after another, also after
// a long time without a pass.
func (p *pass) listUnits(ctx context.Context) error {
	for id, unit := range p.r.Conferences.Fleet.Snapshot().Nodes {
		if unit.Kind != berth.NodeMedia || unit.State != berth.NodeReady || !listDue(id, p.r.Options.FullEvery, p.previous, p.StartedAt) {
			continue
		}
		if err := p.r.Conferences.NotifyLink(ctx, workflows.LinkRequest{
			Unit: berth.NodeRef{NodeID: id, Generation: unit.Generation},
		}); err != nil {
			return err
		}
	}
	return nil
}

// listDue reports whether one of the times at which a unit lists its conferences, which differ from unit to unit, is between two
// passes.
func listDue(id string, every time.Duration, previous, now time.Time) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	phase := int64(h.Sum32()) % every.Milliseconds()
	number := func(t time.Time) int64 { return (t.UnixMilli() - phase) / every.Milliseconds() }
	return !previous.IsZero() && number(now) > number(previous)
}

// liveGeneration returns the generation of a registered unit, 0 for one that is dead or does not exist.
func liveGeneration(unit berth.Node) int64 {
	if unit.State == berth.NodeDead {
		return 0
	}
	return unit.Generation
}

// licences considers the numbers that have a licence.
func (p *pass) licences(ctx context.Context) error {
	return p.r.Scripts.LicensedNumbers(ctx, func(numbers []string) error {
		for _, e164 := range numbers {
			id := workflows.ConferenceWorkflowID(e164)
			if p.listed(id) {
				continue
			}
			c, ok, err := p.r.conference(ctx, id)
			if err != nil {
				return err
			}
			if ok && !c.Status.Final() {
				continue
			}
			if err := p.candidate(ctx, berth.RuleLicenceWithoutConference, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Reconciler) conferenceWithoutRun(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || running {
		return 0, false, err
	}
	c, ok, err := r.conference(ctx, id)
	return c.Revision, ok && !c.Status.Final(), err
}

// eventsPerRevision exceeds how many more events than revisions a conference has published.
const eventsPerRevision = 1000

// restartConference starts a run that continues with the stored state: the list of the conference's unit, or the loss of this unit,
// decides how. Where the last run has completed, an older database was restored, and the row becomes the run's result.
func (r *Reconciler) restartConference(ctx context.Context, f berth.ReconcileFinding) error {
	c, err := r.unchanged(ctx, f)
	if err != nil {
		return err
	}
	ended, err := r.Starter.EndedConference(ctx, f.Subject)
	if err != nil {
		return err
	}
	if ended.ID == c.ID {
		_, err := r.Conferences.SaveConference(ctx, workflows.SaveInput{Conference: ended})
		return err
	}
	in, err := r.conferenceInput(ctx, f.Subject, c)
	if err != nil {
		return err
	}
	units, err := r.Scripts.ReadNodes(ctx, c.Owner.NodeID)
	if err != nil {
		return err
	}
	progress := resumeFrom(c, units[c.Owner.NodeID])
	if earlier := in.Resumed; earlier != nil {
		progress.SubmissionID, progress.Fenced = earlier.SubmissionID, earlier.Fenced
		progress.Stale = append(progress.Stale, earlier.Stale...)
	}
	in.Resumed = &progress
	live := liveGeneration(units[c.Owner.NodeID])
	if err := r.Starter.RestartConference(ctx, in); err != nil || live == 0 {
		return err
	}
	return r.Conferences.NotifyLink(ctx, workflows.LinkRequest{Unit: berth.NodeRef{NodeID: c.Owner.NodeID, Generation: live}})
}

// resumeFrom returns the state with which a conference continues from its row.
func resumeFrom(c berth.Conference, unit berth.Node) workflows.ConferenceProgress {
	now, owner, live := time.Now().UTC(), c.Owner, liveGeneration(unit)
	p := workflows.ConferenceProgress{Events: int(c.Revision) + eventsPerRevision, RetryAt: now, CheckAt: now}
	// A unit that has registered again has listed the copy meanwhile. It had to release it, because the conference had no run.
	released := live != 0 && live != owner.Generation && unit.Incarnation == owner.Incarnation
	if owner.NodeID != "" && c.Status != berth.ConferenceCreating && !released {
		c.Status = berth.ConferenceAwaitingConnection
		p.Slot = &berth.Assignment{
			LeaseID: conferenceLease(c.ID, owner.Epoch), NodeRef: berth.NodeRef{NodeID: owner.NodeID, Generation: owner.Generation}, PoolID: berth.CapabilityConference,
		}
		p.Conference = c
		return p
	}
	if owner.NodeID != "" {
		p.Stale = []workflows.Copy{{
			NodeRef: berth.NodeRef{NodeID: owner.NodeID, Generation: cmp.Or(live, owner.Generation)}, Epoch: owner.Epoch,
		}}
	}
	c.Status, c.Owner, c.Waiting = berth.ConferenceAwaitingRecovery, berth.ConferenceOwner{}, "its run was ended or lost outside of berth"
	if c.LostAt.IsZero() {
		c.LostAt = now
	}
	p.Conference = c
	return p
}

// conferenceInput returns the input of the conference's last run, or one from its row where Temporal has lost the run.
func (r *Reconciler) conferenceInput(ctx context.Context, id string, c berth.Conference) (workflows.ConferenceInput, error) {
	run, ok, err := r.Starter.CurrentRun(ctx, id)
	if err != nil {
		return workflows.ConferenceInput{}, err
	}
	if ok {
		if in, err := starter.Input[workflows.ConferenceInput](ctx, r.Starter, run); err != nil || in.ConferenceID == c.ID {
			return in, err
		}
	}
	return workflows.ConferenceInput{ConferenceID: c.ID, UserID: c.UserID, Spec: c.ConferenceSpec, Rules: r.Options.Conferences}, nil
}

func (r *Reconciler) runWithoutConference(ctx context.Context, id string) (version int64, differs bool, err error) {
	run, ok, err := r.Starter.CurrentRun(ctx, id)
	if err != nil || !ok || !run.Running {
		return 0, false, err
	}
	c, ok, err := r.conference(ctx, id)
	return run.StartedAt.UnixMilli(), err == nil && (!ok || c.Status.Final()), err
}

// saveConference makes the run write its row.
func (r *Reconciler) saveConference(ctx context.Context, f berth.ReconcileFinding) error {
	_, err := r.Starter.SignalConference(ctx, numberOf(f.Subject), workflows.SignalRestore, nil)
	return err
}

func (r *Reconciler) ownerNotLive(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || !running {
		return 0, false, err
	}
	c, ok, err := r.conference(ctx, id)
	if err != nil || !ok || c.Owner.NodeID == "" || c.Status != berth.ConferenceOpen {
		return 0, false, err
	}
	units, err := r.Scripts.ReadNodes(ctx, c.Owner.NodeID)
	return c.Revision, err == nil && liveGeneration(units[c.Owner.NodeID]) != c.Owner.Generation, err
}

// loseOwner notifies a conference that its unit is lost, or requests the list of a unit that has registered again.
func (r *Reconciler) loseOwner(ctx context.Context, f berth.ReconcileFinding) error {
	c, err := r.unchanged(ctx, f)
	if err != nil {
		return err
	}
	units, err := r.Scripts.ReadNodes(ctx, c.Owner.NodeID)
	if err != nil {
		return err
	}
	if live := liveGeneration(units[c.Owner.NodeID]); live != 0 {
		return r.Conferences.NotifyLink(ctx, workflows.LinkRequest{Unit: berth.NodeRef{NodeID: c.Owner.NodeID, Generation: live}})
	}
	_, err = r.Starter.SignalConference(ctx, c.E164, workflows.SignalUnit, workflows.UnitNotice{
		NodeID: c.Owner.NodeID, Generation: c.Owner.Generation, Incarnation: c.Owner.Incarnation, Gone: berth.DepartureUnresponsive,
	})
	return err
}

func (r *Reconciler) licenceWithoutConference(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || running {
		return 0, false, err
	}
	c, ok, err := r.conference(ctx, id)
	if err != nil || ok && !c.Status.Final() {
		return 0, false, err
	}
	_, has, err := r.Scripts.Licences(ctx, numberOf(id))
	return c.Revision, has, err
}

// releaseLicence deletes what Redis has of a conference that has ended.
func (r *Reconciler) releaseLicence(ctx context.Context, f berth.ReconcileFinding) error {
	if running, err := r.runs(ctx, f.Subject); err != nil || running {
		return cmp.Or(err, ledger.ErrStale)
	}
	c, err := r.unchanged(ctx, f)
	if err != nil {
		return err
	}
	e164, conferenceID, epoch := numberOf(f.Subject), c.ID, c.Epoch
	row, ok, err := r.Scripts.ConferenceRow(ctx, e164)
	if err != nil {
		return err
	}
	if ok { // it may be of a conference that the database has lost
		conferenceID, epoch = row.ConferenceID, max(epoch, row.Epoch)
	}
	if _, err := r.Scripts.DropConference(ctx, e164, conferenceID, epoch); err != nil {
		return err
	}
	return r.Conferences.offerLicences(ctx)
}
