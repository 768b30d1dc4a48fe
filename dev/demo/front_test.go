package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ask makes a call at an address and returns its status, 0 if there was no response.
func ask(t *testing.T, url string, c call) int {
	t.Helper()
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Explain %s, part %d."}],"max_tokens":10}`, c.topic, c.part)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	return res.StatusCode
}

// The provider counts what a gateway without limits does, and the front loses replies: every line about them can be false.
func TestProvider_LimitsExceeded_AreCounted(t *testing.T) {
	t.Parallel()
	p := newProvider([]account{{name: "a", cap: 2}, {name: "b", cap: 1, pauseAfter: 1, retryAfter: time.Hour}, {name: "c", empty: true}})
	mux := http.NewServeMux()
	mux.Handle("POST /{account}/v1", p)
	addr, stop, err := serve(mux)
	require.NoError(t, err)
	defer stop()
	free := p.hold(phaseCalm)
	var calls sync.WaitGroup
	for i := range 2 {
		calls.Go(func() {
			if status := ask(t, "http://"+addr+"/a/v1", call{topic: "calm/x", part: i}); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		})
	}
	require.Eventually(t, func() bool { return len(p.all()) == 2 }, 30*time.Second, time.Millisecond)
	require.Equal(t, http.StatusTooManyRequests, ask(t, "http://"+addr+"/a/v1", call{topic: "calm/x", part: 2}))
	free()
	calls.Wait()
	require.Equal(t, 3, p.peaks()["a"])
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		require.Equal(t, status, ask(t, "http://"+addr+"/b/v1", call{topic: "calm/x", part: 3}))
	}
	p.mu.Lock()
	p.pausedAt["b"] = p.pausedAt["b"].Add(-2 * noticed)
	p.mu.Unlock()
	require.Equal(t, http.StatusTooManyRequests, ask(t, "http://"+addr+"/b/v1", call{topic: "calm/x", part: 3}))
	require.Equal(t, http.StatusTooManyRequests, ask(t, "http://"+addr+"/c/v1", call{topic: "calm/x", part: 4}))
	var outcomes []outcome
	var output, early int
	for _, a := range p.all() {
		outcomes = append(outcomes, a.outcome)
		output += a.output
		if a.early {
			early++
		}
	}
	require.Equal(t, []outcome{answered, answered, overCap, answered, paused, paused, paused, noCredit}, outcomes)
	require.Equal(t, 30, output)
	require.Equal(t, 1, early)
}

func TestFront_FirstReplyLost_RetryIsAnswered(t *testing.T) {
	t.Parallel()
	p := newProvider([]account{{name: "a", cap: 2}})
	mux := http.NewServeMux()
	mux.Handle("POST /{account}/v1", p)
	backend, stop, err := serve(mux)
	require.NoError(t, err)
	defer stop()
	f := newFront([]string{"127.0.0.1:1", backend}, nil, 1, 1) // of the first one, the connection is refused
	addr, stop, err := serve(f)
	require.NoError(t, err)
	defer stop()
	lost, kept := call{topic: phaseStorm + "/x", part: 1}, call{topic: phaseCalm + "/x", part: 1}
	require.Zero(t, ask(t, "http://"+addr+"/a/v1", lost))
	require.Equal(t, http.StatusOK, ask(t, "http://"+addr+"/a/v1", lost))
	require.Equal(t, http.StatusOK, ask(t, "http://"+addr+"/a/v1", kept))
	require.Len(t, p.all(), 3)
	require.Equal(t, 1, f.lost())
	require.Equal(t, 1, f.served(phaseStorm))
	require.Len(t, f.calls(), 2)
	require.Len(t, f.at(backend, time.Now(), time.Now()), 2)
	later := time.Now().Add(time.Hour)
	require.Empty(t, f.at(backend, later, later))
}
