package sim_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"berth/internal/sim"
)

func TestConcurrencyLimit_Reached_RefusesWithRetryAfter(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{Concurrency: 2})
	s.fault(t, `{"model":"m","kind":"stall","after":3,"times":2}`)
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, _ = s.stream(ctx, question("m", sentence))
		})
	}
	s.await(t, func(st sim.Stats) bool { return st.Models["m"].InFlight == 2 })
	_, err := s.client.Chat.Completions.New(t.Context(), question("m", sentence))
	apiErr := requireStatus(t, err, http.StatusTooManyRequests)
	require.Equal(t, "1", apiErr.Response.Header.Get("Retry-After"))
	_, err = s.client.Chat.Completions.New(t.Context(), question("another", sentence))
	require.NoError(t, err, "each model has its own limit")
	leave()
	wg.Wait()
	st := s.await(t, func(st sim.Stats) bool { return st.Models["m"].InFlight == 0 })
	require.Equal(t, sim.Counts{Calls: 3, PeakInFlight: 2, Cancelled: 2}, st.Models["m"])
	require.Equal(t, 3, st.Total.PeakInFlight)
	_, err = s.client.Chat.Completions.New(t.Context(), question("m", sentence))
	require.NoError(t, err, "slots are released")
}

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

func TestTokensPerSecond_Set_PacesTheAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{TokensPerSecond: 500, FirstTokenDelay: 20 * time.Millisecond})
	begin := time.Now()
	got, err := s.stream(t.Context(), question("m", sentence))
	require.NoError(t, err)
	least := 20*time.Millisecond + time.Duration(got.chunks-2)*2*time.Millisecond
	require.GreaterOrEqual(t, time.Since(begin), least, "%d chunks", got.chunks)
}

func TestFault_EachKind_StreamedAndWhole(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	plain, err := s.stream(t.Context(), question("m", sentence))
	require.NoError(t, err)
	for _, stream := range []bool{true, false} {
		run := func(ctx context.Context, model string) (streamed, error) {
			if stream {
				return s.stream(ctx, question(model, sentence))
			}
			res, err := s.client.Chat.Completions.New(ctx, question(model, sentence))
			if err != nil {
				return streamed{}, err
			}
			return streamed{content: res.Choices[0].Message.Content, finish: res.Choices[0].FinishReason, usage: res.Usage}, nil
		}
		name := map[bool]string{true: "stream ", false: "whole "}[stream]
		fault := func(t *testing.T, kind, rest string) string {
			t.Helper()
			model := name + kind
			s.call(t, http.MethodPost, "/sim/faults", `{"model":"`+model+`","kind":"`+kind+`"`+rest+`}`, http.StatusOK, nil)
			return model
		}
		for kind, status := range map[string]int{sim.Fault429: 429, sim.Fault500: 500, sim.Fault401: 401} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				model := fault(t, kind, `,"times":2,"retryAfterSec":4`)
				for range 2 {
					_, err := run(t.Context(), model)
					apiErr := requireStatus(t, err, status)
					if status == 429 {
						require.Equal(t, "4", apiErr.Response.Header.Get("Retry-After"))
					}
				}
				got, err := run(t.Context(), model)
				require.NoError(t, err, "the fault is used up")
				require.Equal(t, plain.content, got.content)
			})
		}
		t.Run(name+sim.FaultCut, func(t *testing.T) {
			t.Parallel()
			model := fault(t, sim.FaultCut, `,"after":5`)
			got, err := run(t.Context(), model)
			require.Error(t, err)
			require.NotErrorIs(t, err, context.Canceled)
			require.Empty(t, got.finish)
			if stream {
				require.NotEmpty(t, got.content)
				require.True(t, strings.HasPrefix(plain.content, got.content))
			}
			s.await(t, func(st sim.Stats) bool { return st.Models[model].InFlight == 0 })
			require.Zero(t, s.stats(t).Models[model].Cancelled, "the simulator cut, not the caller")
		})
		t.Run(name+sim.FaultStall, func(t *testing.T) {
			t.Parallel()
			model := fault(t, sim.FaultStall, `,"after":5`)
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := run(ctx, model)
				done <- err
			}()
			s.await(t, func(st sim.Stats) bool { return st.Models[model].InFlight == 1 })
			leave()
			require.Error(t, <-done)
			s.await(t, func(st sim.Stats) bool { return st.Models[model].InFlight == 0 && st.Models[model].Cancelled == 1 })
		})
		t.Run(name+sim.FaultLength, func(t *testing.T) {
			t.Parallel()
			model := fault(t, sim.FaultLength, ``)
			got, err := run(t.Context(), model)
			require.NoError(t, err)
			require.Equal(t, "length", got.finish)
			require.NotEmpty(t, got.content)
			require.Less(t, len(got.content), len(plain.content))
			q := question(model, sentence)
			q.Messages = append(q.Messages, openai.AssistantMessage(got.content), openai.UserMessage("Continue."))
			rest, err := s.stream(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, "stop", rest.finish)
		})
		t.Run(name+sim.FaultBadJSON, func(t *testing.T) {
			t.Parallel()
			got, err := run(t.Context(), fault(t, sim.FaultBadJSON, ``))
			require.NoError(t, err)
			require.Equal(t, "stop", got.finish)
			require.Less(t, len(got.content), len(plain.content))
		})
	}
}

func TestFault_UntilCleared_AppliesToEveryCall(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	s.fault(t, `{"kind":"500","times":-1}`)
	for range 3 {
		_, err := s.client.Chat.Completions.New(t.Context(), question("m", sentence))
		requireStatus(t, err, http.StatusInternalServerError)
	}
	s.call(t, http.MethodDelete, "/sim/faults", "", http.StatusNoContent, nil)
	_, err := s.client.Chat.Completions.New(t.Context(), question("m", sentence))
	require.NoError(t, err)
}
