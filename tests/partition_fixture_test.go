package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/unit"
)

// partition is a stack with two workers, one of which reaches Redis through a link that can be cut, and with units that
// continuously report every conference that they ever owned.
type partition struct {
	*stack
	m     *conferences
	rdb   *redis.Client // one connection for the thousands of reports that the test sends itself
	rng   *rand.Rand
	link  *toxiproxy.Proxy
	far   *process // the worker behind the link
	units map[string]*media
	names []string
	// claims passes the set of claims between goroutines: the goroutine that has received it owns it.
	claims          chan map[claim]bool
	refused, failed atomic.Int64
	reporting       sync.WaitGroup
}

const partitionUnits, partitionConferences = 3, 6

func newPartition(t *testing.T, opts ...option) *partition {
	t.Helper()
	p := &partition{stack: newStack(t, opts...), rng: rand.New(rand.NewPCG(streamSeed(t), 0)), claims: make(chan map[claim]bool, 1)}
	p.claims <- map[claim]bool{}
	p.m, p.rdb = p.conferences(), p.redis()
	p.link = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "redis", "127.0.0.1:0", p.ready.RedisAddr)
	require.NoError(t, p.link.Start())
	t.Cleanup(p.link.Stop)
	near := p.settings
	p.settings = append(slices.Clone(near), "BERTH_REDIS_ADDR="+p.link.Listen)
	p.far = p.startWorker()
	p.settings = near
	status, out := p.send(http.MethodPut, "/v1/config/strategy", p.token("op", "operator"), map[string]any{"times": map[string]any{
		"media": map[string]any{"heartbeatIntervalMs": 300, "suspectAfterMs": 1000, "failureDetectionTimeoutMs": 2000},
	}})
	require.Equal(t, http.StatusOK, status, "%v", out)
	p.units = map[string]*media{}
	for i := range partitionUnits {
		id := fmt.Sprint("u", i+1)
		p.units[id] = p.media(id, partitionConferences)
	}
	for i := range partitionConferences {
		p.names = append(p.names, fmt.Sprint(8650000001+i))
		p.m.open(p.names[i])
	}
	return p
}

// reportAll sends reports of every unit until ctx ends, for each of its generations with each epoch that a copy on it had.
func (p *partition) reportAll(ctx context.Context) {
	reporter, operator := p.user("units", "node"), p.user("op", "operator")
	for id := range p.units {
		p.reporting.Go(func() { // collects the current claims
			direct := &http.Client{Timeout: 300 * time.Millisecond}
			for pause(ctx, 30*time.Millisecond) {
				p.collect(ctx, direct, operator, id)
			}
		})
		p.reporting.Go(func() {
			for n := 0; pause(ctx, 4*time.Millisecond); n++ {
				all := p.claimsOf(id)
				if len(all) == 0 {
					continue
				}
				c := all[n%len(all)]
				p.count(reporter.ReportConference(ctx, c.e164, berth.ConferenceInfo{
					NodeID: c.unit, Generation: c.generation, Epoch: c.epoch, Full: true,
					Live: json.RawMessage(fmt.Sprintf(`{"by":%q}`, fmt.Sprintf("%+v", c))),
				}))
			}
		})
	}
}

// count counts the result of a report; the recorder notes the accepted ones.
func (p *partition) count(err error) {
	var no *client.Problem
	switch {
	case err == nil:
	case errors.As(err, &no) && no.Status == http.StatusConflict:
		p.refused.Add(1)
	default:
		p.failed.Add(1)
	}
}

// collect adds the current claims of a unit.
func (p *partition) collect(ctx context.Context, direct *http.Client, operator *client.Client, id string) {
	now, err := operator.Node(ctx, id)
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.units[id].control+"/", nil)
	if err != nil {
		return
	}
	res, err := direct.Do(req)
	if err != nil {
		return // the unit is stopped or killed
	}
	defer func() { _ = res.Body.Close() }()
	var current struct{ Conferences []unit.Copy }
	if json.NewDecoder(res.Body).Decode(&current) != nil {
		return
	}
	claims := <-p.claims
	defer func() { p.claims <- claims }()
	for _, c := range current.Conferences {
		claims[claim{c.E164, id, now.Generation, c.Epoch}] = true
	}
	for c := range maps.Clone(claims) { // an old copy reported as the new generation, as before its release
		if c.unit == id {
			claims[claim{c.e164, id, now.Generation, c.epoch}] = true
		}
	}
}

// claimsOf returns the claims of a unit, or of all units for an empty id, latest epoch first.
func (p *partition) claimsOf(id string) (out []claim) {
	claims := <-p.claims
	defer func() { p.claims <- claims }()
	for c := range claims {
		if id == "" || c.unit == id {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b claim) int { return int(b.epoch - a.epoch) })
	return out
}

// pause waits for d and returns true, or false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// linkFaults are the faults between the far worker and Redis, and of that worker itself.
var linkFaults = map[string]string{
	"cut":           "",
	"stopped":       "",
	"replies lost":  `{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
	"replies cut":   `{"type":"limit_data","stream":"downstream","attributes":{"bytes":300}}`,
	"commands late": `{"type":"latency","stream":"upstream","attributes":{"latency":1500,"jitter":1000}}`,
}

func (p *partition) disturb(fault string) {
	p.tb.Helper()
	switch fault {
	case "cut":
		p.link.Stop()
	case "stopped":
		require.NoError(p.tb, p.far.cmd.Process.Signal(syscall.SIGSTOP))
	default:
		_, err := p.link.Toxics.AddToxicJson(strings.NewReader(linkFaults[fault]))
		require.NoError(p.tb, err)
	}
}

func (p *partition) heal(fault string) {
	p.tb.Helper()
	switch fault {
	case "cut":
		require.NoError(p.tb, p.link.Start())
	case "stopped":
		require.NoError(p.tb, p.far.cmd.Process.Signal(syscall.SIGCONT))
	default:
		p.link.Toxics.ResetToxics(context.Background())
	}
}

// unitFaults are the faults of a unit. Each returns a function that ends the fault.
var unitFaults = map[string]func(p *partition, u *media) (back func()){
	"silent": func(_ *partition, u *media) func() {
		u.fail(unit.FaultUnresponsive)
		return func() { u.fail(unit.FaultNone) }
	},
	"stopped": func(p *partition, u *media) func() {
		require.NoError(p.tb, u.cmd.Process.Signal(syscall.SIGSTOP))
		return func() { require.NoError(p.tb, u.cmd.Process.Signal(syscall.SIGCONT)) }
	},
	"killed": func(p *partition, u *media) func() {
		u.kill()
		return func() { u.run(partitionConferences) }
	},
}

// round causes a fault of the link and one of a unit until the unit is declared dead, and ends both faults in random order.
func (p *partition) round(link, fault string) {
	p.tb.Helper()
	before := p.owned()
	id := before[p.names[p.rng.IntN(len(p.names))]]
	unitLast := p.rng.IntN(2) == 0 || link == "stopped"
	p.tb.Logf("link: %s; %s: %s; the unit returns last: %t", link, id, fault, unitLast)
	p.disturb(link)
	back := unitFaults[fault](p, p.units[id])
	operator := p.user("op", "operator")
	p.eventually(id+" to be declared dead", func() bool {
		n, err := operator.Node(context.Background(), id)
		return err == nil && n.State == berth.NodeDead
	})
	elsewhere := func() {
		p.eventually("its conferences to be elsewhere", func() bool {
			now := p.owners()
			for e164, owner := range before {
				if owner == id && (now[e164] == id || now[e164] == "") {
					return false
				}
			}
			return true
		})
	}
	switch {
	case link == "stopped": // it continues with its earlier decisions
		elsewhere()
		p.heal(link)
		back()
	case unitLast:
		p.heal(link)
		elsewhere()
		back()
	default:
		back()
		stale := p.refused.Load()
		p.eventually("more reports to be refused", func() bool { return p.refused.Load() > stale+20 })
		p.heal(link)
	}
	p.settled()
}

// restart restarts a media server immediately while the link is disturbed.
func (p *partition) restart(link string) {
	p.tb.Helper()
	u := p.units[p.owned()[p.names[p.rng.IntN(len(p.names))]]]
	p.tb.Logf("link: %s; %s restarts", link, u.id)
	operator := p.user("op", "operator")
	previous, err := operator.Node(context.Background(), u.id)
	require.NoError(p.tb, err)
	p.disturb(link)
	u.ask(http.MethodPost, "/restart", nil)
	p.eventually("its next run to be registered", func() bool {
		n, err := operator.Node(context.Background(), u.id)
		return err == nil && n.State == berth.NodeReady && n.Generation > previous.Generation
	})
	p.heal(link)
	p.settled()
}

// owned returns the units of all conferences, once each is open: on a busy machine, a unit may be declared dead again.
func (p *partition) owned() (owners map[string]string) {
	p.tb.Helper()
	p.eventually("all conferences to be open", func() bool {
		owners = p.owners()
		return len(owners) == partitionConferences
	})
	return owners
}

// owners returns the units of the open conferences, by number.
func (p *partition) owners() map[string]string {
	out := map[string]string{}
	for c, err := range p.m.Conferences(context.Background(), berth.ConferenceOpen, "") {
		if err != nil {
			return nil
		}
		out[c.E164] = c.Owner.NodeID
	}
	return out
}

// settled waits until each conference is open, and each owner is the only unit that has a copy, under its epoch.
func (p *partition) settled() {
	p.tb.Helper()
	p.eventually("one copy of each conference to be left", func() bool {
		copies := 0
		has := map[string]map[string]int64{}
		for id, u := range p.units {
			has[id] = u.runs()
			copies += len(has[id])
		}
		for c, err := range p.m.Conferences(context.Background(), berth.ConferenceOpen, "") {
			if err != nil || has[c.Owner.NodeID][c.E164] != c.Owner.Epoch {
				return false
			}
			copies--
		}
		return copies == 0 && len(p.owners()) == partitionConferences
	})
}

// finish ends a conference, and retries while the far worker is still working on it.
func (p *partition) finish(e164 string) (previous client.Conference) {
	p.tb.Helper()
	p.eventually(e164+" to be ended", func() (ok bool) {
		var over *client.Problem
		got, err := p.m.EndConference(context.Background(), e164)
		previous = got
		return err == nil || errors.As(err, &over) && over.Status == http.StatusConflict
	})
	p.awaitEnd("conference:" + e164)
	return previous
}

// again ends a conference and opens another one with its number: its epochs continue (C20).
func (p *partition) again() {
	p.tb.Helper()
	e164 := p.names[p.rng.IntN(len(p.names))]
	previous := p.finish(e164)
	require.Greater(p.tb, p.m.open(e164).Owner.Epoch, previous.Epoch)
}
