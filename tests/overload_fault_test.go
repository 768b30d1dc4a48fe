//go:build faults

package tests

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	timed "berth/internal/pause"
	"berth/internal/sim"
	"berth/lua"
)

// The load of the tests below: a model of two slots and calls of two seconds serves one call per second.
const (
	overloadSlots  = 2
	overloadCall   = 2 * time.Second
	overloadLength = time.Minute
	overloadPlaces = 20
	overloadQuiet  = 12 * time.Second // between the tasks of a user with few: less than the fair share of one
)

// admission is one task that a client got admitted.
type admission struct {
	id       string
	tier     berth.Tier
	first    int           // Retry-After of the first refusal in seconds, 0 without one
	admitted time.Duration // from the first submission
	tries    int
}

// overload submits tasks and records what happens to them.
type overload struct {
	*stack
	mu       sync.Mutex
	number   int
	accepted map[string][]admission // by user
	refused  map[string]int
	// unavailable is the number of refusals with 503.
	unavailable int
	invalid     []string // refusals without Retry-After, and other responses
}

// submit submits a task that differs from all others, and returns the Retry-After of a refusal in seconds.
func (o *overload) submit(ctx context.Context, user, token string) (acc client.Acceptance, retry int, err error) {
	o.mu.Lock()
	o.number++
	n := o.number
	o.mu.Unlock()
	body, err := json.Marshal(client.Submission{
		ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN,
		Variables: map[string]any{"jobText": fmt.Sprintf("We look for a baker. This is posting number %d of %s.", n, user)},
	})
	if err != nil {
		return acc, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+o.httpAddr+"/v1/tasks", bytes.NewReader(body))
	if err != nil {
		return acc, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return acc, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return acc, 0, err
	}
	if res.StatusCode == http.StatusAccepted {
		return acc, 0, json.Unmarshal(b, &acc)
	}
	retry, _ = strconv.Atoi(res.Header.Get("Retry-After"))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused[user]++
	if res.StatusCode == http.StatusServiceUnavailable { // a process of a machine that is overloaded itself
		o.unavailable++
	}
	if retry < 1 || res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusServiceUnavailable {
		o.invalid = append(o.invalid, fmt.Sprintf("%s: %d, Retry-After %q: %s", user, res.StatusCode, res.Header.Get("Retry-After"), b))
	}
	return acc, max(retry, 1), nil
}

func (o *overload) record(user string, a admission, acc client.Acceptance) {
	a.id, a.tier = acc.TaskID, acc.Tier
	o.mu.Lock()
	defer o.mu.Unlock()
	o.accepted[user] = append(o.accepted[user], a)
}

// admit submits until it is admitted, as its refusals ask for. It returns no id if ctx ends first.
func (o *overload) admit(ctx context.Context, user, token string) (string, error) {
	a, began := admission{}, time.Now()
	for {
		a.tries++
		acc, retry, err := o.submit(ctx, user, token)
		if ctx.Err() != nil {
			return "", nil //nolint:nilerr // the scenario is over
		}
		if err != nil {
			return "", err
		}
		if acc.TaskID != "" {
			a.admitted = time.Since(began)
			o.record(user, a, acc)
			return acc.TaskID, nil
		}
		a.first = cmp.Or(a.first, retry)
		if !timed.For(ctx, time.Duration(retry)*time.Second) {
			return "", nil
		}
	}
}

// flood submits at a fixed rate, whatever the responses are.
func (o *overload) flood(ctx context.Context, user, token string, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	next, refused := admission{}, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		next.tries++
		acc, retry, err := o.submit(ctx, user, token)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case acc.TaskID == "" && next.first == 0:
			next.first, refused = retry, time.Now()
		case acc.TaskID != "":
			if next.first > 0 {
				next.admitted = time.Since(refused)
			}
			o.record(user, next, acc)
			next = admission{}
		}
	}
}

// quiet submits one task at a time, with pauses between them, and returns how long each took, from its first submission to its end.
func (o *overload) quiet(ctx context.Context, user, token string, every time.Duration) (took []time.Duration, err error) {
	c := client.New("http://"+o.httpAddr, token)
	for ctx.Err() == nil {
		began := time.Now()
		id, err := o.admit(ctx, user, token)
		if err != nil || id == "" {
			return took, err
		}
		for ev, err := range c.Follow(context.WithoutCancel(ctx), id, "") {
			if err != nil {
				return took, err
			}
			if ev.Event.Type == berth.EventError {
				return took, errors.New("a task of the quiet user failed: " + ev.Event.Message)
			}
		}
		took = append(took, time.Since(began))
		timed.For(ctx, every)
	}
	return took, nil
}

func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(p*float64(len(all))))].Round(10 * time.Millisecond)
}

// T5, T6, P16: ten times the capacity for a minute. Everything that was accepted finishes, each refusal states when to retry, and the
// free tier is served. The figures are printed: Retry-After and when a client that respects it is admitted, the share of the free
// tier, and how long the tasks of a user with few tasks take, with and without the overload.
func TestTask_TenTimesCapacity_AcceptedFinishAndRefusalsStateWhen(t *testing.T) {
	t.Parallel()
	overloaded(t, 10, 10)
}

// P16: one user submits a hundred times the capacity.
func TestTask_OneUserAtHundredTimesCapacity_OthersAreServed(t *testing.T) {
	t.Parallel()
	overloaded(t, 1, 100)
}

// overloaded submits a multiple of the capacity by so many users, half of them in the paid tier, who repeat submissions without regard to
// refusals.
func overloaded(t *testing.T, users, factor int) {
	t.Helper()
	routes := string(mustRead(t, routing(t, map[string]int{"deepseek-chat": overloadSlots})))
	file := t.TempDir() + "/routing.yaml"
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(routes, "free: glm-4.5-flash", "free: deepseek-chat")), 0o600))
	o := &overload{
		stack: newStack(t, withModel(sim.Options{FirstTokenDelay: overloadCall}),
			with("QUEUE_MAX_SIZE="+strconv.Itoa(overloadPlaces), "BERTH_LOG_LEVEL=info", "BERTH_ROUTING_FILE="+file)),
		accepted: map[string][]admission{}, refused: map[string]int{},
	}
	tokenOf := func(user string, paid bool) string {
		if paid {
			o.user(user)
		}
		return o.token(user)
	}
	measure := func(length time.Duration, load func(context.Context, *errgroup.Group)) (took []time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		var g errgroup.Group
		var mu sync.Mutex
		if load != nil {
			load(ctx, &g)
		}
		for _, user := range []string{"quiet-1", "quiet-2"} {
			token := tokenOf(user, true)
			g.Go(func() error {
				all, err := o.quiet(ctx, user, token, overloadQuiet)
				mu.Lock()
				defer mu.Unlock()
				took = append(took, all...)
				return err
			})
		}
		require.NoError(t, g.Wait())
		return took
	}
	alone := measure(overloadLength, nil)
	began := time.Now()
	var names []string
	loaded := measure(overloadLength, func(ctx context.Context, g *errgroup.Group) {
		every := time.Duration(users) * overloadCall / time.Duration(factor*overloadSlots) // of each user
		for i := range users {
			user := fmt.Sprintf("flood-%d", i)
			names = append(names, user)
			token := tokenOf(user, i%2 == 0)
			g.Go(func() error {
				return o.flood(ctx, user, token, every)
			})
		}
		for i := range 4 {
			user := fmt.Sprintf("probe-%d", i)
			names = append(names, user)
			token := tokenOf(user, i%2 == 0)
			g.Go(func() error {
				_, err := o.quiet(ctx, user, token, 0)
				return err
			})
		}
	})
	ended := time.Now()

	require.Empty(t, o.invalid, "every refusal states when to retry")
	total, refused := 0, 0
	inTime := map[berth.Tier]int{}
	for user, all := range o.accepted {
		total += len(all)
		for _, a := range all {
			token := o.token(user)
			var task map[string]any
			o.eventually("task "+a.id+" to finish", func() bool {
				_, task = o.send(http.MethodGet, "/v1/tasks/"+a.id, token, nil)
				return task["endedAt"] != nil
			})
			require.Equal(t, string(berth.TaskCompleted), task["status"], "%s of %s: %v", a.id, user, task["error"])
			at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(task["endedAt"]))
			require.NoError(t, err)
			if at.After(began) && at.Before(ended) {
				inTime[a.tier]++
			}
		}
	}
	for _, n := range o.refused {
		refused += n
	}

	served := inTime[berth.TierPaid] + inTime[berth.TierFree]
	t.Logf("%s at %d x capacity: %d submissions, %d accepted and all finished, %d refused (%d of them 503), all with Retry-After",
		overloadLength, factor, total+refused, total, refused, o.unavailable)
	t.Logf("served in that time: %d of %d possible; free tier %d, %.1f %% (weight 1 of 5: 20 %%)",
		served, int(overloadLength/overloadCall)*overloadSlots, inTime[berth.TierFree], 100*float64(inTime[berth.TierFree])/float64(max(1, served)))
	for _, user := range names {
		var stated, actual time.Duration
		waited, once := 0, 0
		for _, a := range o.accepted[user] {
			if a.first == 0 {
				continue
			}
			waited++
			stated += time.Duration(a.first) * time.Second
			actual += a.admitted
			if a.tries == 2 {
				once++
			}
		}
		n := time.Duration(max(1, waited))
		t.Logf("%s: %d admitted, %d after a refusal: Retry-After %s on average, admitted after %s; %d at the first retry",
			user, len(o.accepted[user]), waited, (stated / n).Round(10*time.Millisecond), (actual / n).Round(10*time.Millisecond), once)
	}
	t.Logf("tasks of users with few: alone %d, p50 %s, p99 %s; with the overload %d, p50 %s, p99 %s; refused %d times",
		len(alone), percentile(alone, .5), percentile(alone, .99), len(loaded), percentile(loaded, .5), percentile(loaded, .99),
		o.refused["quiet-1"]+o.refused["quiet-2"])

	require.Positive(t, inTime[berth.TierFree], "the free tier is served")
	o.noSlotHeld()
	rdb := o.redis()
	for _, q := range sixQueues(t) {
		o.eventually("the admissions of "+string(q)+" to be free", func() bool {
			now, err := rdb.Time(t.Context()).Result()
			require.NoError(t, err)
			n, err := rdb.ZCount(t.Context(), lua.Keys{}.QueueAdmissions(q), strconv.FormatInt(now.UnixMilli(), 10), "+inf").Result()
			return err == nil && n == 0
		})
	}
}
