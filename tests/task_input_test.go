package tests

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/internal/starter"
	"berth/internal/testredis"
)

func trim(s string) string { return strings.TrimSpace(s) }

// routing writes the built-in routing table with other caps to a file.
func routing(tb testing.TB, caps map[string]int) string {
	tb.Helper()
	text := string(mustRead(tb, filepath.Join("..", "internal", "llm", "routing.yaml")))
	for model, n := range caps {
		from := "  " + model + ":\n    provider: deepseek\n    cap: 5"
		require.Contains(tb, text, from)
		text = strings.Replace(text, from, strings.TrimSuffix(from, "5")+string(rune('0'+n)), 1)
	}
	file := filepath.Join(tb.TempDir(), "routing.yaml")
	require.NoError(tb, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestTask_InvalidInput_RejectedWithField(t *testing.T) { // X6, T26
	t.Parallel()
	s := newStack(t)
	c := s.user("alice")
	foreign, err := s.user("bob").Upload(t.Context(), "posting-en.png", example(t, "posting-en.png"))
	require.NoError(t, err)
	own, err := c.Upload(t.Context(), "resume.txt", example(t, "resume-en.txt"))
	require.NoError(t, err)
	both := map[string]any{"resume": "I write Go.", "jobText": "We look for a Go developer."}
	for name, c2 := range map[string]struct {
		sub    client.Submission
		code   berth.Code
		field  string
		status int
	}{
		"unknown template":    {client.Submission{ServiceID: "career", Template: "poem", Variables: both}, berth.CodeInvalid, "template", 422},
		"no template":         {client.Submission{ServiceID: "career", Variables: both}, berth.CodeInvalid, "template", 422},
		"missing variable":    {client.Submission{ServiceID: "career", Template: "job_match", Variables: map[string]any{"jobText": "x"}}, berth.CodeInvalid, "variables.resume", 422},
		"unknown variable":    {client.Submission{ServiceID: "career", Template: "job_summary", Variables: map[string]any{"jobText": "x", "salary": "y"}}, berth.CodeInvalid, "variables.salary", 422},
		"wrong locale":        {client.Submission{ServiceID: "career", Template: "job_match", Locale: "fr", Variables: both}, berth.CodeInvalid, "locale", 422},
		"foreign asset":       {client.Submission{ServiceID: "career", Template: "job_match", Variables: map[string]any{"resume": "x", "jobImage": client.AssetRef(foreign)}}, berth.CodeInvalid, "variables.jobImage.assetId", 422},
		"text for a picture":  {client.Submission{ServiceID: "career", Template: "job_match", Variables: map[string]any{"resume": "x", "jobImage": client.AssetRef(own)}}, berth.CodeInvalid, "variables.jobImage.assetId", 422},
		"task id with spaces": {client.Submission{TaskID: "a b", ServiceID: "career", Template: "job_match", Variables: both}, berth.CodeInvalid, "taskId", 422},
	} {
		_, err := c.Submit(t.Context(), c2.sub, "")
		var p *client.Problem
		require.ErrorAs(t, err, &p, name)
		require.Equal(t, c2.code, p.Code, "%s: %v", name, p)
		require.Equal(t, c2.field, p.Field, "%s: %v", name, p)
		require.Contains(t, []int{c2.status, http.StatusBadRequest}, p.Status, name)
	}

	upload := func(name string, content []byte, status int, code berth.Code) {
		_, err := c.Upload(t.Context(), name, content)
		var p *client.Problem
		require.ErrorAs(t, err, &p, name)
		require.Equal(t, status, p.Status, name)
		require.Equal(t, code, p.Code, name)
	}
	upload("picture.png", []byte("\x89PNG\r\n\x1a\nthis is none"), http.StatusUnsupportedMediaType, berth.CodeUnsupportedMedia)
	upload("program.exe", append([]byte("MZ"), bytes.Repeat([]byte{0, 1, 2, 0xff}, 100)...), http.StatusUnsupportedMediaType, berth.CodeUnsupportedMedia)
	upload("large.txt", bytes.Repeat([]byte("x"), 20<<20), http.StatusRequestEntityTooLarge, berth.CodeTooLarge)

	var p *client.Problem
	_, err = c.Get(t.Context(), "t_nobody")
	require.ErrorAs(t, err, &p)
	require.Equal(t, berth.CodeNotFound, p.Code)
	_, err = client.New("http://"+s.httpAddr, "no.such.token").Get(t.Context(), "t_nobody")
	require.ErrorAs(t, err, &p)
	require.Equal(t, berth.CodeUnauthenticated, p.Code)
	require.Zero(t, s.stats().Total.Calls, "no model was called")
}

func TestTask_SubmittedAgain_FirstIsReturned(t *testing.T) { // T7
	t.Parallel()
	s := newStack(t)
	c := s.user("alice")
	sub := client.Submission{
		TaskID: "mine", ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN,
		Variables: map[string]any{"jobText": string(example(t, "posting-en.txt"))},
	}
	first, err := c.Submit(t.Context(), sub, "")
	require.NoError(t, err)
	require.False(t, first.Replay)
	watch(t, c, "mine", nil)
	again, err := c.Submit(t.Context(), sub, "")
	require.NoError(t, err)
	require.True(t, again.Replay)
	require.Equal(t, "mine", again.TaskID)
	require.Equal(t, berth.TaskCompleted, again.Status)
	require.Equal(t, 1, s.stats().Total.Calls)

	sub.Variables = map[string]any{"jobText": "another posting"}
	var p *client.Problem
	_, err = c.Submit(t.Context(), sub, "")
	require.ErrorAs(t, err, &p)
	require.Equal(t, berth.CodeIdempotencyMismatch, p.Code)
	others, err := s.user("mallory").Submit(t.Context(), sub, "")
	require.NoError(t, err, "the ids of another user are free")
	require.False(t, others.Replay)
}

func TestTask_ProviderFails_RetriedOrEndsWithCode(t *testing.T) { // T9, T21
	t.Parallel()
	s := newStack(t)
	c := s.user("alice")
	sub := client.Submission{
		ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN,
		Variables: map[string]any{"jobText": string(example(t, "posting-en.txt"))},
	}
	run := func(f sim.Fault) *seen {
		s.fault(f)
		acc, err := c.Submit(t.Context(), sub, berth.NewID(""))
		require.NoError(t, err)
		got := watch(t, c, acc.TaskID, nil)
		s.saveTask(fmt.Sprintf("task-fault-%s-%d", strings.ReplaceAll(f.Kind, "_", "-"), f.Times), "alice", acc.TaskID)
		return got
	}
	got := run(sim.Fault{Kind: sim.Fault401})
	require.Equal(t, berth.EventError, got.last.Type)
	require.Equal(t, berth.CodeProviderKey, got.last.Code, "a key error is reported and not retried")

	got = run(sim.Fault{Kind: sim.Fault500, Times: 2})
	require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
	require.Equal(t, 2, got.resets)

	got = run(sim.Fault{Kind: sim.Fault429})
	require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)

	got = run(sim.Fault{Kind: sim.FaultCut})
	require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)

	got = run(sim.Fault{Kind: sim.FaultBadJSON})
	require.Equal(t, berth.EventDone, got.last.Type, "one repair: "+got.last.Message)
	require.Zero(t, got.resets)

	got = run(sim.Fault{Kind: sim.FaultBadJSON, Times: 3})
	require.Equal(t, berth.EventError, got.last.Type)
	require.Equal(t, berth.CodeInvalidOutput, got.last.Code)
	s.noSlotHeld()
}

func TestTask_ProviderUnreachable_EndsWithCode(t *testing.T) { // T21
	t.Parallel()
	s := newStack(t, with("BERTH_LOCAL_MODEL_URL=http://"+freeAddr(t)+"/v1", "BERTH_TASK_DEADLINE=6s"))
	c := s.user("alice")
	acc, err := c.Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN,
		Variables: map[string]any{"jobText": "We look for a Go developer."},
	}, "")
	require.NoError(t, err)
	got := watch(t, c, acc.TaskID, nil)
	require.Equal(t, berth.EventError, got.last.Type)
	require.Contains(t, []berth.Code{berth.CodeProviderUnavailable, berth.CodeDeadlineExceeded}, got.last.Code)
	require.Contains(t, got.last.Message, "is unreachable or closed the connection")
	require.Contains(t, got.last.Message, "deadline")
	require.NotContains(t, got.last.Message, "dial", "the message is for users")
	s.noSlotHeld()
}

func mustRead(tb testing.TB, file string) []byte {
	tb.Helper()
	b, err := os.ReadFile(file) //nolint:gosec // a file of this test
	require.NoError(tb, err)
	return b
}

func TestTask_RedisUnavailable_SubmissionIsRefused(t *testing.T) { // L11
	t.Parallel()
	server := testredis.Start(t, "--appendonly", "yes")
	s := newStack(t, with("BERTH_REDIS_ADDR="+server.Addr()))
	c := s.user("alice")
	sub := client.Submission{
		TaskID: "patient", ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN,
		Variables: map[string]any{"jobText": "We look for a Go developer."},
	}
	server.Kill()
	began := time.Now()
	_, err := c.Submit(t.Context(), sub, "")
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, berth.CodeUnavailable, p.Code)
	require.Equal(t, http.StatusServiceUnavailable, p.Status)
	t.Logf("refused after %s", time.Since(began).Round(time.Millisecond))
	_, err = c.Get(t.Context(), "patient")
	require.ErrorAs(t, err, &p)
	require.Equal(t, berth.CodeNotFound, p.Code, "no partial effect")

	// The API checks Redis first. A task whose acceptance fails later is withdrawn by its workflow.
	st := starter.Starter{Client: s.temporal(), Deadline: time.Minute, StepTimeout: time.Minute}
	_, _, err = st.SubmitTask(t.Context(), berth.TaskPlan{
		TaskRequest: berth.TaskRequest{
			ID: "late", ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN,
			Tier: berth.TierPaid, Variables: map[string]string{"jobText": "a_1"},
		},
		UserID: "alice", RequestHash: "hash",
		Steps: []berth.Step{{Name: "summary", Queue: "q_paid_batch", Model: "deepseek-chat"}},
	})
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err), "%v", err)
	_, err = c.Get(t.Context(), "late")
	require.ErrorAs(t, err, &p)
	require.Equal(t, berth.CodeNotFound, p.Code, "withdrawn")
	s.saveTask("task-withdrawn", "alice", "late")

	server.Restart()
	s.eventually("the same submission to be accepted", func() bool {
		_, err := c.Submit(t.Context(), sub, "")
		return err == nil
	})
	require.Equal(t, berth.EventDone, watch(t, c, "patient", nil).last.Type)
}
