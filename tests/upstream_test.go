package tests

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/testprovider"
)

// counting are providers that count their concurrent calls, each of one upstream of the model shared, with the most calls that it may get.
type counting struct {
	t       *testing.T
	servers map[string]*testprovider.Server
	most    map[string]int
}

func newCounting(t *testing.T, most map[string]int) *counting {
	t.Helper()
	p := &counting{t: t, servers: map[string]*testprovider.Server{}, most: most}
	for name := range most {
		p.servers[name] = testprovider.Start(t)
	}
	return p
}

// answer sets how long calls take, of which none ends before begin is closed. An answer has the number of the text.
func (p *counting) answer(begin <-chan struct{}, took time.Duration) {
	number := regexp.MustCompile(`text number \d+`)
	for _, s := range p.servers {
		s.Answer(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // in memory
			select {
			case <-begin:
			case <-r.Context().Done():
			}
			testprovider.Write(took/3, "This ", "is the ", "answer to "+string(number.Find(body)))(w, r)
		})
	}
}

// write writes a routing file. caps are the fields of each upstream.
func (p *counting) write(path string, caps map[string]string) {
	p.t.Helper()
	var providers, upstreams strings.Builder
	for name, fields := range caps {
		fmt.Fprintf(&providers, "  %s: {baseURL: %q}\n", name, p.servers[name].URL)
		fmt.Fprintf(&upstreams, "      - {provider: %s, %s}\n", name, fields)
	}
	require.NoError(p.t, os.WriteFile(path, []byte("providers:\n"+providers.String()+"models:\n  shared:\n    timeouts: {firstByte: 10m}\n    upstreams:\n"+upstreams.String()), 0o600))
}

// full reports whether each upstream has as many calls as it may.
func (p *counting) full() bool {
	for name, s := range p.servers {
		if s.InFlight() < p.most[name] {
			return false
		}
	}
	return true
}

func (p *counting) calls() (n int) {
	for _, s := range p.servers {
		n += int(s.Calls.Load())
	}
	return n
}

// G12, G14, G15: four workers with two routing files, two of which are killed while they make calls: no upstream gets more calls than its cap,
// by the count of its provider, and all are used. Each task has one answer.
func TestUpstreams_WorkersOfTwoFilesKilled_CapsHoldAndEachTaskHasOneAnswer(t *testing.T) {
	t.Parallel()
	const tasks = 270
	p := newCounting(t, map[string]int{"a": 5, "b": 3, "c": 6})
	begin := make(chan struct{})
	p.answer(begin, 600*time.Millisecond)
	older, newer := filepath.Join(t.TempDir(), "older.yaml"), filepath.Join(t.TempDir(), "newer.yaml")
	p.write(older, map[string]string{"a": "cap: 20", "b": "cap: 20", "c": "cap: 20"})
	p.write(newer, map[string]string{"a": "cap: 5", "b": "cap: 3", "c": "cap: auto, min: 2, max: 6"})
	s := newStack(t, with("BERTH_ROUTING_FILE="+older, "BERTH_USER_CONCURRENCY=0", "QUEUE_MAX_SIZE=0", "BERTH_SERVICE_MAX_SIZE=0", "BERTH_PAID_RATE=0"))
	second := s.startWorker()
	var others []*process
	for range 2 {
		others = append(others, s.start("berth", []string{"worker"}, append(slices.Clone(s.settings), "BERTH_ROUTING_FILE="+newer)))
	}
	op := s.operator()
	_, err := op.PutTemplate(t.Context(), "shared", client.TemplateFiles{Files: map[string]string{"shared.prompt": fmt.Sprintf(namesModel, "shared")}})
	require.NoError(t, err)
	model := func() client.Model {
		models, err := op.Models(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(models, func(m client.Model) bool { return m.Name == "shared" })
		require.GreaterOrEqual(t, i, 0)
		return models[i]
	}
	s.eventually("all processes to use the newer file", func() bool {
		notUsed := []byte("routing file not used: a newer revision is")
		return strings.Contains(string(s.worker.output()), string(notUsed)) && strings.Contains(string(second.output()), string(notUsed)) &&
			model().Configured.Cap == 14 && !model().Unpolled
	})

	accepted, users := map[string]string{}, map[string]*client.Client{} // texts and users by task
	var mu sync.Mutex
	var submitting errgroup.Group
	submitting.SetLimit(8)
	for n := range tasks {
		c := s.user(fmt.Sprintf("user-%d", n%6))
		submitting.Go(func() error {
			text := fmt.Sprintf("text number %d", n)
			acc, err := c.Submit(t.Context(), client.Submission{ServiceID: "career", Template: "shared", Variables: map[string]any{"text": text + "."}}, text)
			mu.Lock()
			defer mu.Unlock()
			accepted[acc.TaskID], users[acc.TaskID] = text, c
			return err
		})
	}
	require.NoError(t, submitting.Wait())
	require.Len(t, accepted, tasks)
	close(begin)
	s.eventually("all slots to be used, by all workers", p.full)
	killed := time.Now()
	s.worker.kill()
	others[0].kill()
	s.eventually("their calls to end", func() bool { return !p.full() })
	s.eventually("the slots of the killed workers to be used again", func() bool { return p.full() })
	again := time.Since(killed)

	for id, text := range accepted {
		got := watch(t, users[id], id, nil)
		require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
		require.Equal(t, "This is the answer to "+text, got.text)
	}
	for name, server := range p.servers {
		require.Equal(t, p.most[name], server.Peak(), "the most concurrent calls of %s", name)
	}
	s.noSlotHeld()
	sums, err := op.UsageSums(t.Context(), url.Values{"by": {"upstream"}})
	require.NoError(t, err)
	answers := map[string]int64{}
	all := int64(0)
	for _, u := range sums.Sums {
		answers[u.Upstream] = u.Calls - u.Failed
		all += u.Calls - u.Failed
	}
	require.EqualValues(t, tasks, all, "one answer of each task: %+v", sums.Sums)
	for name := range p.servers {
		require.Positive(t, answers[name], "answers of %s: %+v", name, sums.Sums)
	}
	require.Greater(t, p.calls(), tasks, "the killed workers were making calls")
	require.LessOrEqual(t, p.calls(), tasks+14, "no other calls are repeated")
	t.Logf("%d tasks, %d calls, at most %v at a time; all slots were used again %s after two of four workers were killed; answers %v",
		tasks, p.calls(), p.most, again.Round(100*time.Millisecond), answers)
	for u := range 6 {
		require.Equal(t, slices.Repeat([]string{"charge"}, tasks/6), charges(t, s.user(fmt.Sprintf("user-%d", u))))
	}
}
