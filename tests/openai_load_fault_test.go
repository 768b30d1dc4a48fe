//go:build faults

package tests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/internal/testprovider"
	"berth/lua"
)

// processLoad is what a process uses, and what Redis has done.
type processLoad struct {
	goroutines int
	memory     float64 // resident, in bytes
	processor  float64 // seconds since the process has started
	scripts    float64 // that Redis has run
	redis      float64 // seconds of processor time
	at         time.Time
}

// readLoad reads the metrics of a process and of Redis.
func readLoad(t *testing.T, metrics string, rdb *redis.Client) processLoad {
	t.Helper()
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		return v
	}
	text := scrape(metrics)
	metric := func(name string) float64 {
		m := regexp.MustCompile(`(?m)^` + name + `(?:{.*})? (\S+)$`).FindStringSubmatch(text)
		require.NotNil(t, m, name)
		return number(m[1])
	}
	info, err := rdb.Info(t.Context(), "everything").Result()
	require.NoError(t, err)
	field := func(pattern string) float64 {
		m := regexp.MustCompile(pattern).FindStringSubmatch(info)
		require.NotNil(t, m, pattern)
		return number(m[1])
	}
	return processLoad{
		goroutines: int(metric("go_goroutines")), memory: metric("process_resident_memory_bytes"), processor: metric("process_cpu_seconds_total"),
		scripts: field(`cmdstat_evalsha:calls=(\d+)`), redis: field(`used_cpu_user:(\S+)`) + field(`used_cpu_sys:(\S+)`), at: time.Now(),
	}
}

// since describes what was used per second since an earlier time.
func (l processLoad) since(before processLoad) string {
	passed := l.at.Sub(before.at).Seconds()
	return fmt.Sprintf("%d goroutines, %.1f MiB, %.0f ms of processor time per second; %.0f scripts per second, and Redis %.0f ms",
		l.goroutines, l.memory/(1<<20), 1000*(l.processor-before.processor)/passed, (l.scripts-before.scripts)/passed, 1000*(l.redis-before.redis)/passed)
}

// clients are many clients, each of which reads a streamed call to its end.
type clients struct {
	*keyHolder

	all   errgroup.Group
	begun atomic.Int64 // whose response has begun
}

// call makes streamed calls with a message.
func (c *clients) call(t *testing.T, n int, message string) {
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + message + `"}}]}],"stream":true}`
	for range n {
		c.all.Go(func() error {
			res, err := c.send(t.Context(), c.s.httpAddr, body, "Connection", "close")
			if err != nil {
				return err
			}
			defer func() { _ = res.Body.Close() }()
			last, answered, lines := "", false, bufio.NewScanner(res.Body)
			for first := true; lines.Scan(); first = false {
				if first {
					c.begun.Add(1)
				}
				if text := lines.Text(); text != "" {
					last, answered = text, answered || strings.Contains(text, testprovider.Text)
				}
			}
			if res.StatusCode != http.StatusOK || !answered || last != "data: [DONE]" {
				return fmt.Errorf("status %d, ends with %s: %w", res.StatusCode, last, lines.Err())
			}
			return nil
		})
	}
}

// connect makes a streamed call with a message on a connection that has a small buffer.
func (c *clients) connect(t *testing.T, message string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", c.s.httpAddr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	body := `{"model":"m","messages":[{"role":"user","content":"` + message + `"}],"stream":true}`
	_, err = fmt.Fprintf(conn, "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		c.secret, len(body), body)
	require.NoError(t, err)
	return conn
}

// O2, O9: two thousand streamed calls at one API process, of which a hundred run and the others wait, with clients that read slowly or never and with
// large bodies. All that read get their answers, and nothing of the calls remains.
func TestOpenAI_TwoThousandStreams_AllServedNothingRemains(t *testing.T) {
	t.Parallel()
	const slots, streams, slow, unread, large = 100, 2000, 5, 5, 3
	const slowReader, noReader, slowParts = "slow", "unread", 64
	provider, part := testprovider.Start(t), strings.Repeat("x", 8<<10)
	hold := func() (let func()) { // makes the provider answer once let is called
		free := make(chan struct{})
		provider.Answer(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // it is in memory
			r.Body = io.NopCloser(bytes.NewReader(body))
			select {
			case <-free:
			case <-r.Context().Done():
				return
			}
			isSlow, isUnread := bytes.Contains(body, []byte(`"`+slowReader+`"`)), bytes.Contains(body, []byte(`"`+noReader+`"`))
			for i := 0; (isUnread || isSlow && i < slowParts) && r.Context().Err() == nil; i++ {
				testprovider.Part(w, part)
			}
			// Not all end at the same time.
			testprovider.Write(time.Duration(20+rand.IntN(80))*time.Millisecond, "1", "2", "3", "4", "5", "6", "7", "8", "9", testprovider.Text)(w, r)
		})
		return func() { close(free) }
	}
	file, metrics := filepath.Join(t.TempDir(), "routing.yaml"), freeAddr(t)
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
providers: {p: {baseURL: %q}}
models: {m: {provider: p, cap: %d, maxOutputTokens: 1000}}
routes: {default: {paid: m, free: m}}
`, provider.URL, slots), 0o600))
	s := prepareStack(t, t.TempDir(), with("BERTH_ROUTING_FILE="+file, "BERTH_CALL_HOLD=100ms", "BERTH_METRICS_ADDR="+metrics, "BERTH_LOG_LEVEL=info", "QUEUE_MAX_SIZE=5000"))
	t.Cleanup(s.close)
	s.startInfra()
	s.startAPI()
	rdb := s.redis()
	newClients := func() *clients {
		return &clients{keyHolder: s.newKeyHolder(t, "research", "direct")}
	}
	full := func(what string) {
		t.Helper()
		s.eventually(what, func() bool { return provider.InFlight() == slots })
	}
	idle := func() processLoad {
		before := readLoad(t, metrics, rdb)
		<-time.After(5 * time.Second) // the time itself is measured
		after := readLoad(t, metrics, rdb)
		t.Logf("no calls: %s", after.since(before))
		return after
	}

	few, let := newClients(), hold()
	few.call(t, slots, "few")
	full("all slots to be used")
	let()
	require.NoError(t, few.all.Wait())
	rest := idle()

	c, let := newClients(), hold()
	opened := time.Now()
	for open := 0; open < streams; { // not all at the same time, since one database reserves what they may cost
		const together = 200
		c.call(t, together, "many")
		open += together
		s.eventually("streams to be open, and to run or to wait", func() bool {
			waiting, err := rdb.ZCard(t.Context(), lua.Keys{}.ModelWaiting("m")).Result()
			return err == nil && c.begun.Load() == int64(open) && int(waiting) == open-slots
		})
	}
	full("all slots to be used again")
	t.Logf("%d streams were open after %s", streams, time.Since(opened).Round(100*time.Millisecond))
	before := readLoad(t, metrics, rdb)
	<-time.After(15 * time.Second) // the time itself is measured
	open := readLoad(t, metrics, rdb)
	t.Logf("%d streams: %s", streams, open.since(before))
	perStream := (open.memory - rest.memory) / streams
	t.Logf("per stream: %.1f KiB, %.1f goroutines", perStream/1024, float64(open.goroutines-rest.goroutines)/streams)
	require.Less(t, perStream, float64(256<<10), "memory of a stream that waits")
	require.Equal(t, slots, provider.Peak(), "never above the cap")

	var unreads []net.Conn
	for range unread {
		unreads = append(unreads, c.connect(t, noReader))
	}
	for range slow {
		conn := c.connect(t, slowReader)
		c.all.Go(func() error {
			var text []byte
			buf := make([]byte, 16<<10)
			for {
				n, err := conn.Read(buf)
				text = append(text, buf[:n]...)
				if errors.Is(err, io.EOF) && bytes.Contains(text, []byte("data: [DONE]")) && bytes.Count(text, []byte(part)) == slowParts {
					return nil
				}
				if err != nil {
					return fmt.Errorf("a slow reader has %d bytes: %w", len(text), err)
				}
				<-time.After(20 * time.Millisecond) // it is slow
			}
		})
	}
	c.call(t, large, strings.Repeat("A", 30<<20))
	s.eventually("the large calls to wait", func() bool { return c.begun.Load() == streams+large })
	began := time.Now()
	let()
	require.NoError(t, c.all.Wait())
	t.Logf("%d calls were served after %s", streams+slow+large, time.Since(began).Round(100*time.Millisecond))
	s.eventually("the clients that do not read to be disconnected", func() bool { return provider.InFlight() == 0 })
	for _, conn := range unreads {
		_ = conn.Close()
	}

	again, let := newClients(), hold() // no slot has leaked
	again.call(t, 2*slots, "again")
	full("all slots to be used at last")
	let()
	require.NoError(t, again.all.Wait())
	require.Equal(t, slots, provider.Peak(), "never above the cap")
	s.eventually("the goroutines of the calls to end", func() bool {
		return readLoad(t, metrics, rdb).goroutines <= rest.goroutines+10
	})
	idle()
	var calls int
	require.NoError(t, s.database().QueryRowContext(t.Context(), `SELECT count(*) FROM calls`).Scan(&calls))
	require.Zero(t, calls, "calls that were not settled")
	admitted, err := rdb.ZCard(t.Context(), lua.Keys{}.QueueAdmissions("q_paid_stream")).Result()
	require.NoError(t, err)
	require.Zero(t, admitted, "admissions that were not removed")
}
