package ledger

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func participant(conference, identity string) berth.Participant {
	return berth.Participant{
		ConferenceID: conference, Identity: identity, Name: "Ann", Role: berth.RoleParticipant, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// B9: a participant is stored once, and its removal is final.
func TestParticipants_AddedAgainOrRemoved_RemovalIsFinal(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		p, err := l.AddParticipant(ctx, participant("c-1", "ann"))
		require.NoError(t, err)
		require.Equal(t, participant("c-1", "ann").Name, p.Name)
		change := participant("c-1", "ann")
		change.Name, change.Role = "Ann B", berth.RoleListener
		p, err = l.AddParticipant(ctx, change)
		require.NoError(t, err)
		require.Equal(t, berth.RoleListener, p.Role)
		for i := range 3 {
			_, err := l.AddParticipant(ctx, participant("c-1", fmt.Sprintf("bob%d", i)))
			require.NoError(t, err)
		}
		first, next, err := l.Participants(ctx, "c-1", "", 3)
		require.NoError(t, err)
		rest, end, err := l.Participants(ctx, "c-1", next, 3)
		require.NoError(t, err)
		require.Empty(t, end)
		var all []string
		for _, p := range append(first, rest...) {
			all = append(all, p.Identity)
		}
		require.Equal(t, []string{"ann", "bob0", "bob1", "bob2"}, all)

		at := time.Now().UTC().Truncate(time.Millisecond)
		for _, by := range []string{"alice", "olga"} { // who differs in length, and so in time
			p, err = l.RemoveParticipant(ctx, "c-1", "ann", by, at.Add(time.Duration(len(by))*time.Second), true)
			require.NoError(t, err)
			require.Equal(t, "alice", p.RemovedBy, "the first removal is kept")
			require.Equal(t, at.Add(5*time.Second), p.RemovedAt)
		}
		_, err = l.AddParticipant(ctx, change)
		require.Equal(t, berth.CodeConflict, berth.CodeOf(err))
		removed, err := l.RemovedParticipants(ctx, "c-1")
		require.NoError(t, err)
		require.Equal(t, []string{"ann"}, removed)
		removed, err = l.RemovedParticipants(ctx, "c-2")
		require.NoError(t, err)
		require.Empty(t, removed)
		for _, of := range [][2]string{{"c-2", "ann"}, {"c-1", "eve"}, {"c-1", ""}} {
			_, err = l.RemoveParticipant(ctx, of[0], of[1], "alice", at, false)
			require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
			_, err = l.FindParticipant(ctx, of[0], of[1])
			require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
		}
	})
}

// B9: concurrent redemptions admit exactly as many guests as a link states.
func TestLinks_ConcurrentRedemptions_AdmitExactlyMaxUses(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		now := time.Now().UTC().Truncate(time.Millisecond)
		k := berth.Link{ID: "l-1", ConferenceID: "c-1", Role: berth.RoleListener, MaxUses: 5, CreatedAt: now, CreatedBy: "alice"}
		require.NoError(t, l.CreateLink(ctx, k, "hash"))
		var admitted atomic.Int64
		var g errgroup.Group
		for i := range 20 {
			g.Go(func() error {
				id := fmt.Sprintf("guest-%d", i)
				p, err := l.RedeemLink(ctx, "hash", participant("", id), "secret-"+id)
				if berth.CodeOf(err) == berth.CodeNotFound {
					return nil
				}
				if err == nil && (p.ConferenceID != "c-1" || p.Role != berth.RoleListener || p.LinkID != "l-1") {
					err = fmt.Errorf("wrong guest %+v", p)
				}
				admitted.Add(1)
				return err
			})
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 5, admitted.Load())
		found, err := l.FindLink(ctx, "hash")
		require.NoError(t, err)
		require.Equal(t, 5, found.Uses)

		guests, _, err := l.Participants(ctx, "c-1", "", 100)
		require.NoError(t, err)
		require.Len(t, guests, 5)
		guest, err := l.FindGuest(ctx, "secret-"+guests[0].Identity)
		require.NoError(t, err)
		require.Equal(t, guests[0], guest)
		for _, secret := range []string{"", "hash", "x"} {
			_, err = l.FindGuest(ctx, secret)
			require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
		}
		_, err = l.AddParticipant(ctx, participant("c-1", guests[0].Identity))
		require.Equal(t, berth.CodeConflict, berth.CodeOf(err), "a guest's identity cannot be given to another participant")

		k.ID = "l-2"
		require.NoError(t, l.CreateLink(ctx, k, "hash2"))
		_, err = l.RedeemLink(ctx, "hash2", participant("", "guest-x"), "x")
		require.NoError(t, err)
		_, err = l.RemoveParticipant(ctx, "c-1", "guest-x", "alice", now, true)
		require.NoError(t, err)
		_, err = l.RedeemLink(ctx, "hash2", participant("", "guest-y"), "y")
		require.Equal(t, berth.CodeNotFound, berth.CodeOf(err), "its link was revoked with the guest")
		require.Equal(t, berth.CodeNotFound, berth.CodeOf(l.RevokeLink(ctx, "c-2", "l-1", "alice", now)), "of another conference")
		require.NoError(t, l.RevokeLink(ctx, "c-1", "l-1", "alice", now))
		require.NoError(t, l.RevokeLink(ctx, "c-1", "l-1", "olga", now))
		links, _, err := l.Links(ctx, "c-1", "", 10)
		require.NoError(t, err)
		require.Len(t, links, 2)
		require.Equal(t, "alice", links[1].RevokedBy)
	})
}

// B11: participants and links go with age, once their conference has ended.
func TestExpiries_Participants_RemovedAfterConference(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		open := save(t, l, conference("8613800000001", owned("u1")))
		over := save(t, l, conference("8613800000002", func(c *berth.Conference) { c.Status = berth.ConferenceEnded }))
		for _, id := range []string{open.ID, over.ID} {
			_, err := l.AddParticipant(ctx, participant(id, "ann"))
			require.NoError(t, err)
			require.NoError(t, l.CreateLink(ctx, berth.Link{ID: "l-" + id, ConferenceID: id, Role: berth.RoleParticipant, MaxUses: 1, CreatedAt: time.Now()}, id))
		}
		for _, e := range l.Expiries() {
			if e.Name == "participants" || e.Name == "invitation links" {
				for at, want := range map[time.Time]int64{time.Now().Add(-time.Hour): 0, time.Now().Add(time.Hour): 1} {
					n, more, err := e.Remove(ctx, at, 10)
					require.NoError(t, err)
					require.Equal(t, want, n, e.Name)
					require.False(t, more)
				}
			}
		}
		_, err := l.FindParticipant(ctx, open.ID, "ann")
		require.NoError(t, err)
		_, err = l.FindParticipant(ctx, over.ID, "ann")
		require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
	})
}
