// Package tests has the end-to-end tests of berth, with real processes, Redis, Temporal and databases.
package tests

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/internal/testtemplate"
)

func TestTask_PostingImage_ChainStreamsToLastToken(t *testing.T) { // T8, T10, T11, T16, T17, T22, T23, T27
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 200}))
	for _, locale := range []berth.Locale{berth.LocaleEN, berth.LocaleZH} {
		t.Run(string(locale), func(t *testing.T) {
			c := s.user("alice-" + string(locale))
			acc := submitMatch(t, c, locale, "")
			require.Equal(t, berth.Queue("q_paid_vision"), acc.Queue)
			got := watch(t, c, acc.TaskID, nil)

			s.saveTask("task-ended-by-last-step-"+string(locale), "alice-"+string(locale), acc.TaskID)
			require.Equal(t, []berth.TaskStatus{
				"OCR_PENDING", "SUMMARY_PENDING", "MATCH_PENDING", berth.TaskStreaming, berth.TaskCompleted,
			}, got.statuses)
			require.Equal(t, 1, got.count(berth.EventStart))
			require.Equal(t, 1, got.count(berth.EventDone))
			require.Zero(t, got.count(berth.EventError))
			require.Equal(t, berth.EventQueued, got.events[0].Event.Type)
			require.Equal(t, got.last.Text, strings.TrimSpace(got.text), "the tokens are the answer")
			require.NotEmpty(t, got.points)
			for _, ev := range got.events {
				require.Equal(t, acc.TaskID, ev.Event.TaskID)
				require.Equal(t, "career", ev.Event.ServiceID)
				require.NotEmpty(t, ev.Event.Stage)
				require.Positive(t, ev.Event.TS)
			}
			resume := strings.ToLower(string(example(t, "resume-"+string(locale)+".txt")))
			matched, missing := 0, 0
			for _, p := range got.points {
				if !p.Matched {
					missing++
					continue
				}
				matched++
				require.NotEmpty(t, p.Evidence)
				require.Contains(t, squeeze(resume), squeeze(strings.ToLower(p.Evidence)), "the evidence is a passage of the résumé")
			}
			require.Positive(t, matched)
			require.Positive(t, missing)

			task, err := c.Get(t.Context(), acc.TaskID)
			require.NoError(t, err)
			require.Equal(t, berth.TaskCompleted, task.Status)
			require.Equal(t, got.last.Text, task.Text)

			late := watch(t, c, acc.TaskID, nil)
			require.Equal(t, got.last.Text, late.last.Text, "a late reader receives the same")

			_, err = s.user("mallory").Get(t.Context(), acc.TaskID)
			var p *client.Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, berth.CodeNotFound, p.Code)
		})
	}
}

// squeeze removes white space, because a passage may be wrapped differently in its file.
func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

func TestTask_EveryTemplate_Completes(t *testing.T) { // T1, T9, T23
	s := shareStack(t)
	c := s.user("bob")
	posting, resume := string(example(t, "posting-en.txt")), string(example(t, "resume-en.txt"))
	for _, one := range testtemplate.All() {
		tmpl := one.Name
		for _, locale := range []berth.Locale{berth.LocaleEN, berth.LocaleZH} {
			variables := map[string]any{}
			switch tmpl {
			case "job_summary":
				variables["jobText"] = posting
			case "resume_summary", "detailed_resume_summary":
				variables["resume"] = resume
			case "ticket_summary":
				variables["ticket"] = posting
			case "translate":
				variables["text"] = posting
			default:
				variables["jobText"], variables["resume"] = posting, resume
			}
			acc, err := c.Submit(t.Context(), client.Submission{ServiceID: "career", Template: tmpl, Locale: locale, Variables: variables}, "")
			require.NoError(t, err, "%s %s", tmpl, locale)
			got := watch(t, c, acc.TaskID, nil)
			require.Equal(t, berth.EventDone, got.last.Type, "%s %s: %s", tmpl, locale, got.last.Message)
			s.saveTask("task-"+strings.ReplaceAll(string(tmpl), "_", "-"), "bob", acc.TaskID)
			if got.last.Text == "" {
				require.True(t, json.Valid(got.last.Result), "%s %s", tmpl, locale)
				require.Zero(t, got.count(berth.EventToken)+got.count(berth.EventTokenBatch))
			}
		}
	}
}

func TestTask_TwoWorkers_ModelCapHolds(t *testing.T) { // T3, T4, T29
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 400}),
		with("BERTH_ROUTING_FILE="+routing(t, map[string]int{"deepseek-chat": 1, "deepseek-reasoner": 2})))
	s.startWorker()
	c := s.user("carol")
	var ids []string
	for range 8 {
		acc, err := c.Submit(t.Context(), client.Submission{
			ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN,
			Variables: map[string]any{"jobText": string(example(t, "posting-en.txt")), "resume": string(example(t, "resume-en.txt"))},
		}, berth.NewID("")) // equal requests without a key are one task
		require.NoError(t, err)
		ids = append(ids, acc.TaskID)
	}
	for _, id := range ids {
		require.Equal(t, berth.EventDone, watch(t, c, id, nil).last.Type)
	}
	st := s.stats()
	require.Equal(t, 1, st.Models["deepseek-chat"].PeakInFlight)
	require.Equal(t, 2, st.Models["deepseek-reasoner"].PeakInFlight)
	s.noSlotHeld()
}

func TestTask_StoredAssets_EnterTheMatchPrompt(t *testing.T) { // T22, FT6
	t.Parallel()
	s := newStack(t)
	prompts := make(chan string, 100)
	handler := s.model.Config.Handler
	s.model.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		prompts <- string(b)
		r.Body = io.NopCloser(bytes.NewReader(b))
		handler.ServeHTTP(w, r)
	})
	c := s.user("alice")
	run := func(tmpl berth.Template, variables map[string]any) string {
		acc, err := c.Submit(t.Context(), client.Submission{ServiceID: "career", Template: tmpl, Locale: berth.LocaleEN, Variables: variables}, "")
		require.NoError(t, err)
		require.Equal(t, berth.EventDone, watch(t, c, acc.TaskID, nil).last.Type)
		last := ""
		for {
			select {
			case p := <-prompts:
				last = p
				continue
			default:
			}
			return last
		}
	}
	upload := func(user, text string) client.AssetVariable {
		id, err := s.user(user).Upload(t.Context(), "notes.txt", []byte(text))
		require.NoError(t, err)
		return client.AssetRef(id)
	}
	// Only résumés of accepted tasks of the same user are evidence.
	upload("bob", "Bob has led the zeppelin kubernetes platform for years.")
	upload("alice", "A quagga kubernetes text that no task uses.")
	_, err := c.Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "resume_summary",
		Variables: map[string]any{"resume": upload("alice", "A rejected narwhal kubernetes résumé."), "surprise": "x"},
	}, "")
	require.Error(t, err)
	run("interview_prep", map[string]any{
		"resume":  upload("alice", "In the orchid project Alice ran Kubernetes clusters for a hospital."),
		"jobText": upload("alice", "We seek marmot Kubernetes engineers."), "notes": "My wombat kubernetes notes.",
	})
	run("resume_summary", map[string]any{"resume": string(example(t, "resume-en.txt"))})
	prompt := run("job_match", map[string]any{
		"resume": "Six years of Go.", "jobText": string(example(t, "posting-en.txt")),
	})
	require.Contains(t, prompt, "stored_summary", "the summary of the résumé stored before")
	require.Contains(t, prompt, "orchid project", "a passage found by words of the posting")
	for _, other := range []string{"zeppelin", "quagga", "narwhal", "marmot", "wombat"} {
		require.NotContains(t, prompt, other)
	}
}
