package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/sim"
)

func TestCaller_Leaves_CallIsCancelled(t *testing.T) {
	t.Parallel()
	for during, opt := range map[string]sim.Options{
		"first token": {FirstTokenDelay: time.Hour}, "pace": {TokensPerSecond: 0.01},
	} {
		s := start(t, opt)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.stream(ctx, question(during, sentence))
			done <- err
		}()
		s.await(t, func(st sim.Stats) bool { return st.Models[during].InFlight == 1 })
		leave()
		require.Error(t, <-done)
		s.await(t, func(st sim.Stats) bool { return st.Models[during].InFlight == 0 && st.Models[during].Cancelled == 1 })
	}
}

func TestFault_EachKind_AnswerIsAsTheFaultSays(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	plain, err := s.stream(t.Context(), question("m", sentence))
	require.NoError(t, err)
	for kind, status := range map[string]int{sim.Fault429: 429, sim.Fault500: 500, sim.Fault401: 401} {
		s.fault(t, `{"model":"`+kind+`","kind":"`+kind+`","times":2,"retryAfterSec":4}`)
		for range 2 {
			_, err := s.stream(t.Context(), question(kind, sentence))
			apiErr := requireStatus(t, err, status)
			if status == 429 {
				require.Equal(t, "4", apiErr.Response.Header.Get("Retry-After"))
			}
		}
		got, err := s.stream(t.Context(), question(kind, sentence))
		require.NoError(t, err, "the fault is used up")
		require.Equal(t, plain.content, got.content)
	}
	for _, c := range []struct {
		kind   string
		after  int
		finish string // "": the stream breaks off
		tokens int
	}{
		{sim.FaultCut, 5, "", 5},
		{sim.FaultCut, 0, "", (plain.chunks - 2) / 2},
		{sim.FaultLength, 0, "length", (plain.chunks - 2) / 2},
		{sim.FaultLength, 4, "length", 4},
		{sim.FaultBadJSON, 0, "stop", (plain.chunks - 2) / 2},
	} {
		s.fault(t, fmt.Sprintf(`{"model":"broken","kind":%q,"after":%d}`, c.kind, c.after))
		got, err := s.stream(t.Context(), question("broken", sentence))
		require.Equal(t, c.finish == "", err != nil, c.kind)
		require.Equal(t, c.finish, got.finish, c.kind)
		require.True(t, strings.HasPrefix(plain.content, got.content), c.kind)
		if c.finish != "" {
			require.Equal(t, c.tokens+2, got.chunks, c.kind)
			continue
		}
		require.LessOrEqual(t, got.chunks, c.tokens+1, c.kind)
		s.await(t, func(st sim.Stats) bool { return st.Models["broken"].InFlight == 0 })
		require.Zero(t, s.stats(t).Models["broken"].Cancelled, "the simulator cut, not the caller")
	}
	s.fault(t, `{"model":"stalled","kind":"stall","after":5}`)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.stream(ctx, question("stalled", sentence))
		done <- err
	}()
	s.await(t, func(st sim.Stats) bool { return st.Models["stalled"].InFlight == 1 })
	leave()
	require.Error(t, <-done)
	s.await(t, func(st sim.Stats) bool {
		return st.Models["stalled"].InFlight == 0 && st.Models["stalled"].Cancelled == 1
	})
}

func TestFault_UntilCleared_AppliesToEveryCall(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	s.fault(t, `{"kind":"500","times":-1}`)
	for range 3 {
		_, err := s.stream(t.Context(), question("m", sentence))
		requireStatus(t, err, http.StatusInternalServerError)
	}
	s.call(t, http.MethodDelete, "/sim/faults", "", http.StatusNoContent, nil)
	_, err := s.stream(t.Context(), question("m", sentence))
	require.NoError(t, err)
}
