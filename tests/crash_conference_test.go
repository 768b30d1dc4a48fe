//go:build faults

package tests

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"berth"
	"berth/client"
	"berth/internal/unit"
	"berth/lua"
	"berth/workflows"
)

// simulated is the simulated media server of a unit. The test reads from it which conferences it runs.
type simulated struct{ id, control string }

// ask sends a request to the simulated media server and returns the copies that it runs.
func (u simulated) ask(method, path string, body any) ([]unit.Copy, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+u.control+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var current struct{ Conferences []unit.Copy }
	return current.Conferences, json.NewDecoder(res.Body).Decode(&current)
}

// unit returns the parts of a media unit: its process, and its media server, which becomes unreachable and returns with its
// copies.
func (w *cluster) unit(id, url string, slots int) []*part {
	u := simulated{id, freeAddr(w.tb)}
	w.units = append(w.units, u)
	fail := func(f unit.Fault) func() {
		return func() {
			_, _ = u.ask(http.MethodPut, "/fault", map[string]any{"fault": f}) // the process may have ended
		}
	}
	return []*part{
		w.runs(id, "berth-sim", []string{
			"media", "--id", id, "--slots", fmt.Sprint(slots), "--control", u.control, "--delay", "20ms", "--check", "100ms",
		}, append(w.measured(id), "BERTH_URL="+url, "BERTH_TOKEN="+w.token("units", "node"))),
		{name: "link of " + id, kill: fail(unit.FaultUnresponsive), start: fail(unit.FaultNone)},
	}
}

// leave removes all participants from a conference, so that its unit ends it.
func (w *cluster) leave(e164 string) {
	for _, u := range w.units {
		_, _ = u.ask(http.MethodDelete, "/conferences/"+e164, nil) // an unreachable unit does not run it, or not for long
	}
}

// copies has the unit that runs each copy, by number and epoch.
type copies map[string]map[int64][]string

func (c copies) add(e164 string, epoch int64, unit string) {
	if c[e164] == nil {
		c[e164] = map[int64][]string{}
	}
	if !slices.Contains(c[e164][epoch], unit) {
		c[e164][epoch] = append(c[e164][epoch], unit)
	}
}

// twice returns an error if two units had the same epoch: the owner of an epoch is the owner while the conference has it.
func (c copies) twice() error {
	var wrong []error
	for e164, epochs := range c {
		for epoch, units := range epochs {
			if len(units) > 1 {
				wrong = append(wrong, fmt.Errorf("epoch %d of %s was on %v", epoch, e164, units))
			}
		}
	}
	return errors.Join(wrong...)
}

// observe reads the units until ctx ends, and returns all copies that they had.
func (w *cluster) observe(ctx context.Context) <-chan copies {
	out := make(chan copies, 1)
	go func() {
		seen := copies{}
		for ; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
			for _, u := range w.units {
				current, _ := u.ask(http.MethodGet, "/", nil) // the process may have ended
				for _, c := range current {
					seen.add(c.E164, c.Epoch, u.id)
				}
			}
		}
		out <- seen
	}()
	return out
}

// agree compares the ledger, the workflows, Redis and the units: units run the open conferences where these are open, and
// nothing else. No slot is held for other conferences.
func (w *cluster) agree() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wrong []error
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	open := map[string]berth.Conference{}
	for c, err := range client.New(w.urls[0], w.token("op", "operator")).Conferences(ctx, "", "") {
		if err != nil {
			return err
		}
		if !c.Status.Final() {
			open[c.E164] = c
		}
	}
	for e164, c := range open {
		v, err := w.frontend.QueryWorkflow(ctx, workflows.ConferenceWorkflowID(e164), "", workflows.QueryConference)
		if err != nil {
			return err
		}
		var current berth.Conference
		if err := v.Get(&current); err != nil {
			return err
		}
		if current.ID != c.ID || current.Status != c.Status || current.Owner != c.Owner || current.Revision != c.Revision {
			bad("%s: its workflow says %s on %v, revision %d; the ledger %s on %v, revision %d", e164, current.Status, current.Owner, current.Revision, c.Status, c.Owner, c.Revision)
		}
		if c.Status != berth.ConferenceOpen {
			bad("%s: %s, %s", e164, c.Status, c.Waiting)
		}
	}
	list, err := w.frontend.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: `ExecutionStatus = "Running" AND WorkflowType = "` + workflows.ConferenceWorkflow + `"`,
	})
	if err != nil {
		return err
	}
	if n := len(list.GetExecutions()); n != len(open) {
		bad("%d runs for %d conferences", n, len(open))
	}
	rows, err := w.rows(ctx)
	if err != nil {
		return err
	}
	for e164, row := range rows {
		if c := open[e164]; row.ConferenceID != c.ID || row.Status != c.Status || row.NodeID != c.Owner.NodeID ||
			row.Generation != c.Owner.Generation || row.Epoch != c.Owner.Epoch || row.Revision != c.Revision {
			bad("row of %s: %+v, and it is %s on %v, revision %d", e164, row, c.Status, c.Owner, c.Revision)
		}
	}
	if len(rows) != len(open) {
		bad("%d rows for %d conferences", len(rows), len(open))
	}
	for _, u := range w.units {
		current, err := u.ask(http.MethodGet, "/", nil)
		if err != nil {
			return err
		}
		var runs, owns, holds []string
		for _, c := range current {
			runs = append(runs, fmt.Sprintf("%s:%s:%d", c.E164, c.ConferenceID, c.Epoch))
		}
		for e164, c := range open {
			if c.Owner.NodeID == u.id {
				owns = append(owns, fmt.Sprintf("%s:%s:%d", e164, c.ID, c.Owner.Epoch))
				holds = append(holds, fmt.Sprintf("conference:%s:%d", c.ID, c.Owner.Epoch))
			}
		}
		if !same(runs, owns) {
			bad("%s runs %v, and owns %v", u.id, runs, owns)
		}
		if held, err := w.rdb.ZRange(ctx, w.scripts.Keys().NodeSlots(u.id), 0, -1).Result(); err != nil {
			return err
		} else if !same(held, holds) {
			bad("%s: slots are held for %v, not %v", u.id, held, holds)
		}
		numbers, err := w.scripts.UnitConferences(ctx, u.id)
		if err != nil {
			return err
		}
		for i := range owns {
			owns[i], _, _ = strings.Cut(owns[i], ":")
		}
		if !same(numbers, owns) {
			bad("set of %s: %v, and it owns %v", u.id, numbers, owns)
		}
	}
	return errors.Join(wrong...)
}

// rows returns the conferences in Redis.
func (w *cluster) rows(ctx context.Context) (map[string]lua.ConferenceRow, error) {
	out := map[string]lua.ConferenceRow{}
	keys := w.rdb.Scan(ctx, 0, w.scripts.Keys().Conference("*"), 1000).Iterator()
	for keys.Next(ctx) {
		_, name, _ := strings.Cut(keys.Val(), "confex/")
		e164, _, _ := strings.Cut(name, ":") // the information has a key of the same number
		if keys.Val() == w.scripts.Keys().ConferenceEnded(e164) {
			continue // kept against late writes
		}
		row, _, err := w.scripts.ConferenceRow(ctx, e164)
		if err != nil {
			return nil, err
		}
		out[e164] = row
	}
	return out, keys.Err()
}

func same[T cmp.Ordered](a, b []T) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// agreed waits until all sources agree, and returns how long that took.
func (w *cluster) agreed(within time.Duration) time.Duration {
	w.tb.Helper()
	for began := time.Now(); ; <-time.After(thinks) {
		err := w.agree()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > within {
			w.tb.Fatalf("waited %s for all to agree: %v", within, err)
		}
	}
}

// keptOnly waits until only conferences that were not ended are left and all sources agree. It returns all that were
// accepted.
func (w *cluster) keptOnly(t *testing.T, l *load, calm time.Time) (accepted []met) {
	t.Helper()
	for {
		select {
		case m := <-l.met:
			require.NoError(t, m.err)
			accepted = append(accepted, m)
			continue
		default:
		}
		break
	}
	w.awaitReady()
	w.agreed(maxWait)
	// A slot is held for a copy with an unknown state for the time of a command and 20 s.
	t.Logf("units, workflows, ledger and Redis agreed %s after the last start", time.Since(calm).Round(10*time.Millisecond))
	rows, err := w.rows(t.Context())
	require.NoError(t, err)
	require.Len(t, rows, keptRooms)
	for _, m := range accepted {
		if m.finish == kept {
			require.Equal(t, m.id, rows[m.e164].ConferenceID, "%s is lost", m.id)
		}
	}
	return accepted
}

// release ends the conferences that stayed open.
func (w *cluster) release(t *testing.T, accepted []met) {
	t.Helper()
	for _, m := range accepted {
		if m.finish == kept {
			_, err := client.New(w.urls[0], w.token("op", "operator")).EndConference(t.Context(), m.e164)
			require.NoError(t, err)
		}
	}
}

// everyDisagreementIsSeen checks the checks: it makes each possible error, expects it to be detected, and undoes it.
func (w *cluster) everyDisagreementIsSeen(t *testing.T) {
	t.Helper()
	rows, err := w.rows(t.Context())
	require.NoError(t, err)
	var row lua.ConferenceRow
	for _, row = range rows {
	}
	at := slices.IndexFunc(w.units, func(u simulated) bool { return u.id != row.NodeID })
	redis, keys := w.rdb, w.scripts.Keys()
	do := func(cmds ...string) {
		args := make([]any, len(cmds))
		for i, c := range cmds {
			args[i] = c
		}
		require.NoError(t, redis.Do(t.Context(), args...).Err())
	}
	for what, change := range map[string][2]func(){
		"a second copy": {
			func() {
				_, err := w.units[at].ask(http.MethodPut, "/conferences/"+row.E164, unit.Copy{UnitCopy: berth.UnitCopy{E164: row.E164, Epoch: row.Epoch}})
				require.NoError(t, err)
			},
			func() {
				_, err := w.units[at].ask(http.MethodDelete, "/conferences/"+row.E164, nil)
				require.NoError(t, err)
			},
		},
		"a leaked slot": {
			func() { do("ZADD", keys.NodeSlots(w.units[at].id), "9e12", "leaked") },
			func() { do("ZREM", keys.NodeSlots(w.units[at].id), "leaked") },
		},
		"a member too many": {
			func() { do("SADD", keys.UnitConferences(w.units[at].id), row.E164) },
			func() { do("SREM", keys.UnitConferences(w.units[at].id), row.E164) },
		},
		"another epoch": {
			func() { do("HINCRBY", keys.Conference(row.E164), "epoch", "1") },
			func() { do("HINCRBY", keys.Conference(row.E164), "epoch", "-1") },
		},
		"a row too many": {
			func() { do("COPY", keys.Conference(row.E164), keys.Conference("8659999999")) },
			func() { do("DEL", keys.Conference("8659999999")) },
		},
	} {
		change[0]()
		require.Error(t, w.agree(), what)
		change[1]()
	}
	w.agreed(maxWait)
}

// overOnce compares an ended conference with its events: there is one end, which is the last event, never two units at a
// time, and no transition that C13 does not allow.
func overOnce(current berth.Conference, sent []berth.ConferenceEvent) error {
	var wrong []error
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("conference %s of %s: "+format, append([]any{current.ID, current.E164}, args...)...))
	}
	if !current.Status.Final() || current.End == "" || current.EndedAt.IsZero() || current.Owner.NodeID != "" {
		bad("%s (%q) at %s, owner %v", current.Status, current.End, current.EndedAt, current.Owner)
	}
	var epoch int64
	before := current.CreatedAt
	for _, s := range current.Segments {
		if s.Epoch <= epoch || s.StartedAt.Before(before) || s.EndedAt.Before(s.StartedAt) || s.Reason == "" {
			bad("segment %+v after epoch %d at %s", s, epoch, before)
		}
		epoch, before = s.Epoch, s.EndedAt
	}
	var status berth.ConferenceStatus
	epoch = 0
	done := 0
	for i, ev := range sent {
		if ev.Type == berth.EventDone {
			done++
			if i != len(sent)-1 || ev.Status != current.Status || ev.End != current.End {
				bad("%d of %d events: done, %s (%q), and it is %s (%q)", i, len(sent), ev.Status, ev.End, current.Status, current.End)
			}
		}
		if ev.Status != status && !status.CanBecome(ev.Status) {
			bad("%d of %d events: %q became %q", i, len(sent), status, ev.Status)
		}
		status = ev.Status
		if ev.Owner != nil {
			if ev.Owner.Epoch < epoch {
				bad("%d of %d events: epoch %d after %d", i, len(sent), ev.Owner.Epoch, epoch)
			}
			epoch = ev.Owner.Epoch
		}
	}
	if done != 1 {
		bad("%d terminal events in %d", done, len(sent))
	}
	return errors.Join(wrong...)
}

// finished reports whether the conference ended in the expected way.
func (f finish) finished(current berth.Conference) bool {
	ends := map[finish][]berth.ConferenceEnd{
		byUsers: {berth.EndReleased}, byOperator: {berth.EndReleased}, kept: {berth.EndReleased}, byUnit: {berth.EndByUnit},
		byClock: {berth.EndTime, berth.EndNotRecovered},
	}
	return slices.Contains(ends[f], current.End)
}

// streams returns the stored events of every conference.
func (w *cluster) streams(t *testing.T) map[string][]berth.ConferenceEvent {
	t.Helper()
	out := map[string][]berth.ConferenceEvent{}
	for n := range rooms {
		ch := lua.ConferenceChannel(fmt.Sprintf("host-%d", n), fmt.Sprint(8650000001+n))
		entries, err := w.rdb.XRange(t.Context(), w.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID), "-", "+").Result()
		require.NoError(t, err)
		for _, e := range entries {
			var ev berth.ConferenceEvent
			require.NoError(t, json.Unmarshal([]byte(e.Values["e"].(string)), &ev))
			out[ev.ConferenceID] = append(out[ev.ConferenceID], ev)
		}
	}
	return out
}

// everyConference checks that every accepted conference ended once, for the expected reason, with a record, and that its
// reader received all its events. It returns how many times one was recovered.
func (w *cluster) everyConference(t *testing.T, l *load, accepted []met) (recovered int) {
	t.Helper()
	ledger := map[string]berth.Conference{}
	for c, err := range client.New(w.urls[0], w.token("op", "operator")).Conferences(t.Context(), "", "") {
		require.NoError(t, err)
		ledger[c.ID] = c
	}
	received := map[string][]berth.ConferenceEvent{}
	for close(l.sent); ; {
		ev, more := <-l.sent
		if !more {
			break
		}
		received[ev.ConferenceID] = append(received[ev.ConferenceID], ev)
	}
	stored := w.streams(t)
	ends := map[string]int{}
	for id, c := range ledger {
		require.NoError(t, overOnce(c, stored[id]))
		ends[fmt.Sprintf("%s (%s)", c.Status, c.End)]++
	}
	segments := 0
	for _, m := range accepted {
		c, ok := ledger[m.id]
		require.True(t, ok, "%s is lost", m.id)
		require.True(t, m.finish.finished(c), "%s, %s: %s (%s)", m.id, m.finish, c.Status, c.End)
		require.Equal(t, stored[m.id], received[m.id], "published and received events of %s", m.id)
		status, record := w.send(http.MethodGet, "/v1/conferences/"+m.e164+"/record?conferenceId="+m.id, w.token("op", "operator"), nil)
		require.Equal(t, http.StatusOK, status)
		require.Len(t, record["segments"], len(c.Segments))
		segments += len(c.Segments)
	}
	for id := range stored {
		require.Contains(t, ledger, id, "an event of an unknown conference")
	}
	t.Logf("%d conferences were accepted, and ran on %d units one after the other; %d in all ended: %v; %d times a number was still closing",
		len(accepted), segments, len(ledger), ends, l.closing.Load())
	require.Len(t, slices.Collect(maps.Keys(received)), len(accepted))
	return segments - len(accepted)
}

// Each possible error in an ended conference is detected.
func TestCrashCheck_WrongConferenceStates_AreDetected(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.UnixMilli(0).Add(time.Duration(s) * time.Second) }
	right := func() (berth.Conference, []berth.ConferenceEvent) {
		current := berth.Conference{ID: "c", Status: berth.ConferenceEnded, End: berth.EndReleased, CreatedAt: at(1), EndedAt: at(5), Segments: []berth.ConferenceSegment{
			{NodeID: "a", Epoch: 1, StartedAt: at(1), EndedAt: at(2), Reason: berth.EndUnitLost},
			{NodeID: "b", Epoch: 2, StartedAt: at(3), EndedAt: at(5), Reason: berth.EndReleased},
		}}
		on := func(epoch int64) *berth.ConferenceOwner { return &berth.ConferenceOwner{NodeID: "n", Epoch: epoch} }
		return current, []berth.ConferenceEvent{
			{Status: berth.ConferenceCreating, Owner: on(1)},
			{Status: berth.ConferenceOpen, Owner: on(1)},
			{Status: berth.ConferenceAwaitingRecovery},
			{Status: berth.ConferenceAwaitingRecovery, Waiting: "full"},
			{Status: berth.ConferenceCreating, Owner: on(2)},
			{Status: berth.ConferenceOpen, Owner: on(2)},
			{Type: berth.EventDone, Status: berth.ConferenceEnded, End: berth.EndReleased},
		}
	}
	current, sent := right()
	require.NoError(t, overOnce(current, sent))
	for what, change := range map[string]func(*berth.Conference, *[]berth.ConferenceEvent){
		"not over":           func(c *berth.Conference, _ *[]berth.ConferenceEvent) { c.Status = berth.ConferenceOpen },
		"no reason":          func(c *berth.Conference, _ *[]berth.ConferenceEvent) { c.End = "" },
		"owned":              func(c *berth.Conference, _ *[]berth.ConferenceEvent) { c.Owner.NodeID = "a" },
		"two at a time":      func(c *berth.Conference, _ *[]berth.ConferenceEvent) { c.Segments[1].StartedAt = at(1) },
		"an epoch again":     func(c *berth.Conference, _ *[]berth.ConferenceEvent) { c.Segments[1].Epoch = 1 },
		"an open segment":    func(c *berth.Conference, _ *[]berth.ConferenceEvent) { c.Segments[1].EndedAt = time.Time{} },
		"no end":             func(_ *berth.Conference, e *[]berth.ConferenceEvent) { *e = (*e)[:6] },
		"two ends":           func(_ *berth.Conference, e *[]berth.ConferenceEvent) { *e = append(*e, (*e)[6]) },
		"another end":        func(_ *berth.Conference, e *[]berth.ConferenceEvent) { (*e)[6].End = berth.EndTime },
		"something after it": func(_ *berth.Conference, e *[]berth.ConferenceEvent) { *e = append(*e, (*e)[2]) },
		"a lost beginning":   func(_ *berth.Conference, e *[]berth.ConferenceEvent) { *e = (*e)[1:] },
		"a step unknown":     func(_ *berth.Conference, e *[]berth.ConferenceEvent) { *e = slices.Delete(*e, 2, 4) },
		"an older owner":     func(_ *berth.Conference, e *[]berth.ConferenceEvent) { (*e)[5].Owner.Epoch = 1 },
		"nothing":            func(_ *berth.Conference, e *[]berth.ConferenceEvent) { *e = nil },
	} {
		current, sent := right()
		change(&current, &sent)
		require.Error(t, overOnce(current, sent), what)
	}
	seen := copies{}
	seen.add("1", 1, "a")
	seen.add("1", 2, "b")
	seen.add("1", 2, "b")
	require.NoError(t, seen.twice())
	seen.add("1", 2, "a")
	require.Error(t, seen.twice())
	require.False(t, kept.finished(berth.Conference{End: berth.EndByUnit}))
}
