package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/lua"
)

// namesModel is a template whose only step names a model.
const namesModel = "---\ntitle: {en: One model}\nmodels: {paid: %s, free: %[1]s}\nvariables:\n  - {name: text, required: true}\n---\n{{role \"user\"}}\n{{document \"text\" text}}\n"

// routingFile is a routing file that processes may read while it is replaced.
type routingFile struct {
	t    *testing.T
	path string
}

// write replaces the file: models with their caps, all of the simulator.
func (f routingFile) write(url string, caps map[string]int) time.Time {
	f.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "providers: {sim: {baseURL: %q}}\nmodels:\n", url+"/v1")
	for name, n := range caps {
		fmt.Fprintf(&b, "  %s: {provider: sim, cap: %d}\n", name, n)
	}
	require.NoError(f.t, os.WriteFile(f.path+".next", []byte(b.String()), 0o600))
	require.NoError(f.t, os.Rename(f.path+".next", f.path))
	return time.Now()
}

// recordLimits records the limits of a model in Redis, each time they change, until it is stopped.
func (s *stack) recordLimits(model string) (stop func() []string) {
	rdb, done := s.redis(), make(chan struct{})
	var seen []string
	var running sync.WaitGroup
	running.Go(func() {
		for {
			base := rdb.HGet(s.tb.Context(), lua.Keys{}.ModelLimits(model), "base").Val()
			if base != "" && (len(seen) == 0 || seen[len(seen)-1] != base) {
				seen = append(seen, base)
			}
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond): // a sample
			}
		}
	})
	return func() []string { close(done); running.Wait(); return seen }
}

// The routing changes while tasks run and wait: a new model is used, a removed one finishes what was accepted, and processes with different files
// use the same limits.
func TestRouting_FileChangesWhileTasksRun_NewModelServedRemovedOneFinishes(t *testing.T) { // G10, G15
	t.Parallel()
	dir := t.TempDir()
	file, other := routingFile{t, filepath.Join(dir, "routing.yaml")}, routingFile{t, filepath.Join(dir, "other.yaml")}
	s := newStack(t, func(s *stack) {
		file.write(s.model.URL, map[string]int{"calm": 1, "gone": 1})
		s.settings = append(s.settings, "BERTH_ROUTING_FILE="+file.path)
	})
	calls := s.holdCalls()
	op, c := s.operator(), s.user("alice")
	put := func(model string) {
		name := berth.Template("of_" + model)
		_, err := op.PutTemplate(t.Context(), name, client.TemplateFiles{Files: map[string]string{string(name) + ".prompt": fmt.Sprintf(namesModel, model)}})
		require.NoError(t, err)
	}
	submit := func(model, text string) (client.Acceptance, error) {
		return c.Submit(t.Context(), client.Submission{
			ServiceID: "career", Template: berth.Template("of_" + model), Variables: map[string]any{"text": text},
		}, "")
	}
	models := func() map[string]client.Model {
		list, err := op.Models(t.Context())
		require.NoError(t, err)
		found := map[string]client.Model{}
		for _, m := range list {
			found[m.Name] = m
		}
		return found
	}
	served := func(model string) func() bool {
		return func() bool { m, ok := models()[model]; return ok && !m.Unpolled && m.Missing == "" }
	}
	put("gone")
	put("calm")
	put("fresh")
	s.eventually("both models to be polled", func() bool { return served("gone")() && served("calm")() })
	stop := s.recordLimits("calm")

	// A second worker has another file, which is newer: all processes use it.
	other.write(s.model.URL, map[string]int{"calm": 2, "gone": 1})
	second := s.start("berth", []string{"worker"}, append(slices.Clone(s.settings), "BERTH_ROUTING_FILE="+other.path))
	s.eventually("the first worker to use the file of the second", func() bool {
		return bytes.Contains(s.worker.output(), []byte("routing file not used: a newer revision is"))
	})
	s.eventually("the API to use it", func() bool { return models()["calm"].Configured.Cap == 2 })
	calm := map[string]chan struct{}{}
	for i := range 4 { // of both workers
		acc, err := submit("calm", fmt.Sprint("calm ", i))
		require.NoError(t, err)
		calm[acc.TaskID] = nil
	}
	for range 4 {
		close(<-calls)
	}
	for id := range calm {
		require.Equal(t, berth.EventDone, watch(t, c, id, nil).last.Type)
	}

	running, err := submit("gone", "one")
	require.NoError(t, err)
	call := <-calls
	waiting, err := submit("gone", "two")
	require.NoError(t, err)
	s.eventually("the second task to wait", func() bool { return models()["gone"].Waiting == 1 })

	changed := other.write(s.model.URL, map[string]int{"calm": 2, "fresh": 1})
	s.eventually("the new model to be served", served("fresh"))
	fresh, err := submit("fresh", "three")
	require.NoError(t, err)
	made := <-calls
	t.Logf("a task called the new model %s after the change of the file", time.Since(changed).Round(time.Millisecond))
	close(made)
	require.Equal(t, berth.EventDone, watch(t, c, fresh.TaskID, nil).last.Type)

	_, err = submit("gone", "four")
	require.ErrorContains(t, err, "of_gone")
	require.ErrorContains(t, err, "no model gone")
	require.Equal(t, client.ModelRemoved, models()["gone"].Missing)

	third := s.start("berth", []string{"worker"}, s.settings) // of the first file, which has not changed
	s.eventually("a later worker to poll the removed model", func() bool { return bytes.Contains(third.output(), []byte("model.gone")) })
	require.True(t, second.stop(time.Minute))
	close(call)
	close(<-calls)
	for _, id := range []string{running.TaskID, waiting.TaskID} {
		require.Equal(t, berth.EventDone, watch(t, c, id, nil).last.Type)
	}
	seen := stop()
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(seen))), len(seen), "limits that were replaced do not return: %v", seen)
	require.NotEmpty(t, seen)
}
