//go:build faults

package tests

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/ledger"
	"berth/lua"
)

// processorTime returns how much processor time a process has used.
func (p *process) processorTime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(t, err)
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	var ticks int64
	for _, f := range fields[11:13] { // user and system
		n, err := strconv.ParseInt(f, 10, 64)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestConsole_LargeFleet_EveryViewStaysUsable logs how long each view takes with 10,000 nodes, 10,000 waiting tasks and 1,000
// conferences, and what an open console costs.
func TestConsole_LargeFleet_EveryViewStaysUsable(t *testing.T) { // X8
	t.Parallel()
	const nodes, tasks, conferences, changes = 10_000, 10_000, 1_000, 5_000
	s := newStack(t, with("BERTH_RECONCILE_EVERY=1h", "BERTH_RECONCILE_FULL_EVERY=1h"))
	for _, kind := range []berth.NodeKind{berth.NodeTranslate, berth.NodeMedia} {
		s.setTimes(kind, 60_000, 1_200_000, 1_800_000)
	}
	scripts := lua.New(s.redis(), lua.Keys{})
	s.fill(t, scripts, nodes, tasks, conferences)

	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('nav a[href="#/console"]') !== null`)
	for view, shown := range map[string]string{
		"": `.tiles`, "/fleet": `.rows tbody tr`, "/fleet?pool=translate%3Aen-es": `.rows tbody tr`, "/fleet/node-05000": `.details`, "/pools": `.rows tbody tr`,
		"/models": `.card.model`, "/tasks": `.rows tbody tr`, "/tasks?userId=user-7": `.rows tbody tr`, "/conferences": `.rows tbody tr`,
		"/conferences/8690000500": `.timeline`, "/audit": `.rows tbody tr`,
	} {
		b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/console" + view))
		started := time.Now()
		b.do(chromedp.Reload())
		b.await("the view "+view, `location.hash === %s && document.querySelector(%s) !== null`, "#/console"+view, ".pane "+shown)
		took := time.Since(started)
		require.LessOrEqual(t, ask[int](b, `document.querySelectorAll('.rows tbody tr').length`), 50, "a page of the list, not all of it")
		t.Logf("%-30s %6d ms until it is shown after a reload, %5.1f MB of JavaScript", "#/console"+view, took.Milliseconds(),
			float64(ask[int64](b, `performance.memory.usedJSHeapSize`))/1e6)
	}

	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/console/fleet"))
	b.await("the second page", `document.querySelector('.pager button:last-of-type:not(:disabled)') !== null`)
	first := ask[string](b, `document.querySelector('.rows tbody a').textContent`)
	b.do(chromedp.Click(`.pager button:last-of-type`))
	b.await("other nodes", `document.querySelector('.rows tbody a').textContent > %s`, first)

	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/console"))
	b.await("the overview", `document.querySelector('.tiles') !== null`)
	cost := func(what string, during func()) {
		used, started := s.api.processorTime(t), time.Now()
		during()
		took := time.Since(started)
		t.Logf("%s: the API used %.1f %% of a core in %s", what, 100*float64(s.api.processorTime(t)-used)/float64(took), took.Round(time.Millisecond))
	}
	cost("an open overview without changes", func() {
		timer := time.NewTimer(20 * time.Second) // a measurement, no condition
		<-timer.C
	})
	cost(fmt.Sprintf("%d changes while the overview is open", changes), func() {
		for i := range changes {
			require.NoError(t, scripts.AppendOperatorEvents(t.Context(), berth.OperatorEvent{
				Type: berth.EventNode, NodeID: fmt.Sprintf("node-%05d", i), Status: "ready",
			}))
		}
		b.await("the last change", `document.querySelector('.changes a')?.textContent === %s`, fmt.Sprintf("node-%05d", changes-1))
	})
	t.Logf("%.1f MB of JavaScript after %d changes", float64(ask[int64](b, `performance.memory.usedJSHeapSize`))/1e6, changes)
	b.quiet()
}

// fill registers nodes and writes rows of waiting tasks and open conferences, which nothing runs.
func (s *stack) fill(t *testing.T, scripts *lua.Scripts, nodes, tasks, conferences int) {
	t.Helper()
	store, err := ledger.Open(t.Context(), "sqlite:"+filepath.Join(s.dir, "berth.db"), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	now := time.Now()
	var g errgroup.Group
	g.SetLimit(8)
	each := func(n int, do func(ctx context.Context, i int) error) {
		for i := range n {
			g.Go(func() error { return do(t.Context(), i) })
		}
		require.NoError(t, g.Wait())
	}
	each(nodes, func(ctx context.Context, i int) error {
		_, err := scripts.RegisterNode(ctx, berth.NodeSpec{
			ID: fmt.Sprintf("node-%05d", i), Kind: berth.NodeTranslate, Hostname: fmt.Sprint("host-", i), Zone: fmt.Sprint("zone-", i%5),
			Incarnation: berth.Incarnation{Host: fmt.Sprint("host-", i), PID: 1, StartedAt: now.UnixMilli()}, Capabilities: []string{enES, fmt.Sprint("model-", i%50)},
		}, lua.Registration{})
		return err
	})
	steps := []berth.Step{{Name: "summary", Mode: berth.ModeBatch, Queue: "q_paid_batch", Model: "deepseek-chat"}}
	each(tasks, func(ctx context.Context, i int) error {
		_, _, err := store.CreateTask(ctx, berth.Task{DeadlineAt: now.Add(time.Hour), TaskPlan: berth.TaskPlan{
			UserID: fmt.Sprint("user-", i%100), Steps: steps, TaskRequest: berth.TaskRequest{
				ID: fmt.Sprintf("task-%05d", i), ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, Tier: berth.TierPaid,
				Variables: map[string]string{},
			},
		}})
		return err
	})
	each(conferences, func(ctx context.Context, i int) error {
		unit := berth.ConferenceOwner{NodeID: fmt.Sprint("unit-", i%20), Generation: 1, Epoch: 1}
		return store.SaveConference(ctx, berth.Conference{
			ID: fmt.Sprintf("c-%04d", i), UserID: fmt.Sprint("user-", i%100), Status: berth.ConferenceOpen, Owner: unit, Epoch: 1, CreatedAt: now, OpenedAt: now,
			ConferenceSpec: berth.ConferenceSpec{E164: strconv.Itoa(8690000000 + i), Title: "Weekly planning", EndAt: now.Add(time.Hour), Recoverable: true},
			Segments:       []berth.ConferenceSegment{{NodeID: unit.NodeID, Generation: 1, Epoch: 1, StartedAt: now}}, Orders: []berth.ConferenceOrder{},
		})
	})
}
