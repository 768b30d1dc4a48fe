package tests

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testdb"
	"berth/internal/testredis"
	"berth/internal/unit"
)

// C4, L12: after a restart with its data, Redis knows all units: none registers again, and each is requested to list its
// conferences immediately.
func TestConference_RedisRestartsWithData_KeepsItsOwner(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--appendonly", "yes")
	s := newStack(t, with("BERTH_REDIS_ADDR="+redis.Addr(), "BERTH_CONFERENCE_CONNECT=10m"))
	s.ready.RedisAddr = redis.Addr()
	m := s.conferences()
	u1 := s.media("u1", 5)
	c := m.open("8670000001").Conference
	redis.Restart()
	current := m.await(c.E164, "open again after its unit's list was awaited", func(current berth.Conference) bool {
		return current.Status == berth.ConferenceOpen && current.Revision > c.Revision+1
	})
	require.Equal(t, c.Owner, current.Owner)
	require.Equal(t, map[string]int64{c.E164: c.Owner.Epoch}, u1.runs())
	m.end(c.E164, "conference-redis-back")
	s.noSlots("u1")
}

// C15, C19: a media server is unreachable for less than the detection time, and a conference ends on it meanwhile. It
// returns as the same generation, and its unit is requested to list its conferences anyway.
func TestConference_EndsDuringUnitOutage_EndIsDetected(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.setTimes(berth.NodeMedia, 1000, 60_000, 120_000)
	m := s.conferences()
	u1 := s.media("u1", 5)
	ends, stays := m.open("8670000001").Conference, m.open("8670000002").Conference
	u1.fail(unit.FaultUnresponsive)
	s.eventually("the unit to have let go of its media server", func() bool { return bytes.Contains(u1.output(), []byte("node stopped")) })
	u1.ask(http.MethodDelete, "/conferences/"+ends.E164, nil)
	u1.fail(unit.FaultNone)
	current := m.await(ends.E164, "ended", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndByUnit, current.End)
	m.awaitEnd(ends.E164, "conference-ended-unseen")
	current = m.await(stays.E164, "open", on("u1"))
	require.Equal(t, stays.Owner, current.Owner)
	s.link("link-back-in-time", "u1", stays.Owner.Generation)
	m.end(stays.E164, "conference-unit-unreachable")
	s.noSlots("u1")
}

// P2: a worker dies after it wrote a step of a recovery and before it reported the result, and the conference is ended before
// another worker repeats the step. What the first worker wrote stays valid, and the end is published once.
func TestConference_WorkerDiesDuringRecovery_EndsOnce(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	database := testdb.Postgres(t)
	s := newStack(t, with("BERTH_REDIS_ADDR="+redis.Addr(), "BERTH_DATABASE="+database))
	s.ready.RedisAddr = redis.Addr()
	m := s.conferences()
	u1 := s.media("u1", 1)
	c := m.open("8670000001").Conference
	var sent []berth.ConferenceEvent
	listening, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	received := make(chan error, 1)
	go func() {
		for ev, err := range m.FollowConference(listening, c.E164, c.ID) {
			if err != nil {
				received <- err
				return
			}
			sent = append(sent, ev)
		}
		received <- nil
	}()
	s.media("u2", 1)
	db, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer func() { _ = db.Close(context.Background()) }()
	held, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), "LOCK TABLE conferences IN SHARE MODE")
	require.NoError(t, err)
	u1.kill()
	s.eventually("the recovery to be written", func() bool {
		var waiting int
		err := held.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'conferences'::regclass`).Scan(&waiting)
		return err == nil && waiting > 0
	})
	require.NoError(t, redis.Client().Do(t.Context(), "CLIENT", "PAUSE", "60000", "WRITE").Err())
	require.NoError(t, held.Commit(t.Context()))
	s.eventually("it to be written in the database only", func() bool {
		var status string
		err := db.QueryRow(t.Context(), `SELECT status FROM conferences WHERE id = $1`, c.ID).Scan(&status)
		return err == nil && status == string(berth.ConferenceCreating)
	})
	s.worker.kill()
	require.NoError(t, redis.Client().Do(t.Context(), "CLIENT", "UNPAUSE").Err())
	ended := make(chan error, 1)
	go func() { _, err := m.EndConference(context.Background(), c.E164); ended <- err }()
	s.worker = s.startWorker() // it gets the work only after the other worker has missed its deadline
	require.NoError(t, <-ended)
	current := m.await(c.E164, "ended", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndReleased, current.End)
	require.NoError(t, <-received)
	require.Equal(t, berth.EventDone, sent[len(sent)-1].Type)
	m.awaitEnd(c.E164, "conference-ended-otherwise")
	s.noSlots("u2")
}
