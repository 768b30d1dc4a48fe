package api_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// storedConference is a conference that the fake has opened.
type storedConference struct {
	berth.Conference
	in workflows.ConferenceInput
}

// CreateConference opens the conference on unit u1, as the workflow does.
func (s *fakeStarter) CreateConference(ctx context.Context, in workflows.ConferenceInput) (berth.Conference, bool, error) {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return berth.Conference{}, false, b.failure
	}
	if c, ok := b.conferences[in.Spec.E164]; ok && !c.Status.Final() {
		if c.in.RequestHash != in.RequestHash {
			return berth.Conference{}, false, &berth.Error{Code: berth.CodeConflict, Field: "e164", Message: "the number has another conference"}
		}
		return c.Conference, true, nil
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	c := berth.Conference{
		ConferenceSpec: in.Spec, ID: in.ConferenceID, UserID: in.UserID, Status: berth.ConferenceDeleted, CreatedAt: now, Revision: 1,
	}
	if b.refuse != nil {
		c.End, c.EndedAt = berth.EndRefused, now
		if err := s.ledger.SaveConference(ctx, c); err != nil {
			return c, false, err
		}
		return berth.Conference{}, false, b.refuse
	}
	epoch := int64(1)
	if last, ok := b.conferences[c.E164]; ok {
		epoch = last.Epoch + 1
	}
	c.Status, c.Epoch, c.OpenedAt = berth.ConferenceOpen, epoch, now
	c.Owner = berth.ConferenceOwner{NodeID: "u1", Generation: 1, Epoch: epoch}
	b.conferences[c.E164] = &storedConference{Conference: c, in: in}
	return c, false, s.keep(ctx, c)
}

// keep stores the conference and publishes the change, as the workflow does at each transition.
func (s *fakeStarter) keep(ctx context.Context, c berth.Conference) error {
	if err := s.ledger.SaveConference(ctx, c); err != nil {
		return err
	}
	_, err := s.scripts.PutConference(ctx, lua.ConferenceRow{
		E164: c.E164, ConferenceID: c.ID, NodeID: c.Owner.NodeID, Generation: c.Owner.Generation, Epoch: c.Epoch,
		Revision: c.Revision, Status: c.Status, StartedAt: c.OpenedAt,
	}, c.Metadata, lua.Licence{})
	if err == nil && c.Status.Final() {
		_, err = s.scripts.DropConference(ctx, c.E164, c.ID, c.Epoch)
	}
	return err
}

func (s *fakeStarter) ReleaseConference(ctx context.Context, e164 string, req workflows.ReleaseRequest) (bool, error) {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return false, b.failure
	}
	c, ok := b.conferences[e164]
	if !ok || c.Status.Final() || c.ID != req.ConferenceID {
		return false, berth.Errorf(berth.CodeConflict, "the conference has ended")
	}
	b.releasedBy = append(b.releasedBy, req.By)
	if b.slow {
		return false, nil
	}
	c.Status, c.End, c.EndedAt, c.Revision = berth.ConferenceEnded, berth.EndReleased, time.Now().UTC(), c.Revision+1
	c.Owner = berth.ConferenceOwner{}
	return true, s.keep(ctx, c.Conference)
}

func (s *fakeStarter) SendRecord(_ context.Context, in workflows.RecordInput, again bool) error {
	b, unlock := s.open()
	defer unlock()
	if b.failure == nil && again {
		b.records = append(b.records, in.ConferenceID)
	}
	return b.failure
}

func (s *fakeStarter) SendEvent(_ context.Context, in workflows.WebhookInput, again bool) error {
	b, unlock := s.open()
	defer unlock()
	if b.failure == nil && again {
		b.events = append(b.events, in.DeliveryID)
	}
	return b.failure
}

// sentEvents returns the ids of the deliveries that were started.
func (s *fakeStarter) sentEvents() []string {
	b, unlock := s.open()
	defer unlock()
	return slices.Clone(b.events)
}

// sentRecords returns the ids of the conferences whose records were sent again.
func (s *fakeStarter) sentRecords() []string {
	b, unlock := s.open()
	defer unlock()
	return slices.Clone(b.records)
}

func (s *fakeStarter) MoveConference(ctx context.Context, e164 string, req workflows.MoveRequest) (berth.Conference, error) {
	b, unlock := s.open()
	defer unlock()
	if b.refuse != nil {
		return berth.Conference{}, b.refuse
	}
	c, ok := b.conferences[e164]
	if !ok || c.Status.Final() {
		return berth.Conference{}, berth.Errorf(berth.CodeConflict, "the conference has ended")
	}
	c.Owner.NodeID, c.Revision = cmp.Or(req.Unit, "u2"), c.Revision+1
	return c.Conference, s.keep(ctx, c.Conference)
}

func (s *fakeStarter) ExtendConference(ctx context.Context, e164 string, req workflows.ExtendRequest) (berth.Conference, error) {
	b, unlock := s.open()
	defer unlock()
	c, ok := b.conferences[e164]
	if !ok || c.Status.Final() {
		return berth.Conference{}, berth.Errorf(berth.CodeConflict, "the conference has ended")
	}
	c.EndAt, c.Revision = req.EndAt, c.Revision+1
	return c.Conference, s.keep(ctx, c.Conference)
}

func (s *fakeStarter) SignalConference(_ context.Context, _, _ string, notice any) (bool, error) {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return false, b.failure
	}
	b.notices = append(b.notices, notice.(workflows.UnitNotice))
	return true, nil
}

func (s *fakeStarter) Reconcile(context.Context, bool) (string, error) {
	b, unlock := s.open()
	defer unlock()
	return "pass-1", b.failure
}

func (s *fakeStarter) ReportUnits(_ context.Context, units []berth.NodeRef) error {
	b, unlock := s.open()
	defer unlock()
	if b.failure != nil {
		return b.failure
	}
	b.reports = append(b.reports, slices.Clone(units))
	return nil
}

// change makes a transition of a conference, as its workflow does.
func (h *harness) change(e164 string, f func(c *berth.Conference)) berth.Conference {
	h.t.Helper()
	b, unlock := h.starter.open()
	defer unlock()
	c := b.conferences[e164]
	c.Revision++
	f(&c.Conference)
	require.NoError(h.t, h.starter.keep(h.t.Context(), c.Conference))
	return c.Conference
}
