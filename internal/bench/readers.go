package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/shirou/gopsutil/v4/process"

	"berth"
	"berth/internal/ledger"
	"berth/internal/pause"
	berthstream "berth/internal/stream"
	"berth/lua"
)

// openers is the number of streams that are opened concurrently.
const openers = 16

// readers measures the memory of the API with many open event streams, one for each of as many tasks, and that of a bare echo
// handler that holds as many responses open; and the connections to Redis.
func readers(ctx context.Context, r *Run) (err error) {
	n := r.times(10_000)
	r.step("%d readers of a bare handler", n)
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	bare, err := startChild(ctx, self, nil, "--echo", addr)
	if err != nil {
		return err
	}
	defer bare.kill()
	if err := pause.Until(ctx, opened, 50*time.Millisecond, func(ctx context.Context) error { return ready(ctx, "http://"+addr+"/") }); err != nil {
		return err
	}
	baseline, err := memoryWithReaders(ctx, bare, addr, n, func(int) string { return "GET /events HTTP/1.1\r\nHost: bench\r\n\r\n" })
	if err != nil {
		return err
	}

	r.step("tasks for %d readers", n)
	h, err := r.start(ctx, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	tasks, err := h.openStreams(ctx, n)
	if err != nil {
		return err
	}
	request := func(i int) string {
		return fmt.Sprintf("GET /v1/tasks/%s/events HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n\r\n", tasks[i], h.token)
	}
	host := strings.TrimPrefix(h.url, "http://")
	// A few readers first, so that all connections to Redis exist before they are counted.
	if _, err := memoryWithReaders(ctx, h.api, host, min(n, 100), request); err != nil {
		return err
	}
	before, err := h.redisConnections(ctx)
	if err != nil {
		return err
	}
	r.step("%d readers of the API", n)
	var after int
	measured, err := memoryWithReaders(ctx, h.api, host, n, request, func() (err error) {
		after, err = h.redisConnections(ctx)
		return err
	})
	if err != nil {
		return err
	}
	const mib = 1 << 20
	r.add(Figure{Name: fmt.Sprintf("memory of the API with %d open event streams", n), Unit: "MiB", Value: measured.open / mib}.
		beside("bare echo handler with as many open responses", baseline.open/mib).within(maxRatio(2)))
	r.add(Figure{Name: "memory of one open event stream", Unit: "KiB", Value: (measured.open - measured.rest) / float64(n) / 1024}.
		beside("bare echo handler", (baseline.open-baseline.rest)/float64(n)/1024))
	r.add(Figure{Name: fmt.Sprintf("connections to Redis with %d open event streams", n), Value: float64(after)}.
		beside("with 100", float64(before)).within(maxRatio(1.1)))
	return nil
}

// memory is the resident memory of a process in bytes.
type memory struct{ rest, open float64 }

// memoryWithReaders opens n streams, waits until the process's garbage is collected, and calls then.
func memoryWithReaders(ctx context.Context, c child, addr string, n int, request func(i int) string, then ...func() error) (m memory, err error) {
	if m.rest, err = resident(ctx, c); err != nil {
		return m, err
	}
	conns := make([]net.Conn, n)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close() // closing is intended
			}
		}
	}()
	_, err = concurrently(ctx, n, openers, func(ctx context.Context, i int) (err error) {
		if conns[i], err = new(net.Dialer).DialContext(ctx, "tcp", addr); err != nil {
			return err
		}
		if _, err := conns[i].Write([]byte(request(i))); err != nil {
			return err
		}
		if err := conns[i].SetReadDeadline(time.Now().Add(opened)); err != nil {
			return err
		}
		return await(conns[i], "retry: ")
	})
	if err != nil {
		return m, fmt.Errorf("open %d streams: %w", n, err)
	}
	if !pause.For(ctx, settle) {
		return m, context.Cause(ctx)
	}
	if m.open, err = resident(ctx, c); err != nil {
		return m, err
	}
	for _, f := range then {
		if err := f(); err != nil {
			return m, err
		}
	}
	return m, nil
}

// settle is how long open streams idle before memory is measured.
const settle = 5 * time.Second

// await reads until the text has arrived.
func await(conn net.Conn, text string) error {
	var seen []byte
	buf := make([]byte, 4096)
	for !strings.Contains(string(seen), text) {
		n, err := conn.Read(buf)
		if err != nil {
			return fmt.Errorf("no %q in %q: %w", text, seen, err)
		}
		seen = append(seen, buf[:n]...)
	}
	return nil
}

func resident(ctx context.Context, c child) (float64, error) {
	p, err := process.NewProcessWithContext(ctx, int32(c.cmd.Process.Pid)) //nolint:gosec // a process id
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", c.cmd.Process.Pid, err)
	}
	m, err := p.MemoryInfoWithContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", c.cmd.Process.Pid, err)
	}
	return float64(m.RSS), nil
}

// openStreams writes n tasks and opens their streams, as workers do. It returns the ids of the tasks.
func (h *stack) openStreams(ctx context.Context, n int) (ids []string, err error) {
	quiet := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(ctx, string(h.cfg.Database.URL), quiet)
	if err != nil {
		return nil, err
	}
	rdb := redisClient(h.cfg)
	defer func() { err = errors.Join(err, rdb.Close(), l.Close()) }()
	publisher := berthstream.NewPublisher(lua.New(rdb, lua.Keys{Cell: h.cfg.Redis.Cell}), berthstream.Options{Logger: quiet})
	ids = make([]string, n)
	_, err = concurrently(ctx, n, openers, func(ctx context.Context, i int) error {
		task, _, err := l.CreateTask(ctx, berth.Task{
			TaskPlan: berth.TaskPlan{
				TaskRequest: berth.TaskRequest{
					ID: fmt.Sprintf("%s-%d", h.tag, i), ServiceID: "bench", Template: streamTemplate, TemplateVersion: "bench", Locale: berth.LocaleEN,
					Tier: berth.TierPaid, Variables: map[string]string{},
				},
				UserID: benchUser,
				Steps: []berth.Step{{
					Name: "answer", Mode: berth.ModeStream, Status: berth.TaskStreaming,
					Queue: "bench", Model: "deepseek-reasoner",
				}},
			},
			DeadlineAt: time.Now().Add(time.Hour),
		})
		if err != nil {
			return err
		}
		ids[i] = task.ID
		return publisher.Open(ctx, lua.Channel{UserID: task.UserID, ServiceID: task.ServiceID, TaskID: task.ID}, 1, task.DeadlineAt)
	})
	return ids, err
}

// redisConnections returns the number of connections to Redis.
func (h *stack) redisConnections(ctx context.Context) (n int, err error) {
	rdb := redisClient(h.cfg)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	list, err := rdb.ClientList(ctx).Result()
	return strings.Count(list, "\n"), err
}

// ServeEcho serves the bare handler at addr until ctx ends: an echo handler that holds responses open.
func ServeEcho(ctx context.Context, addr string) error {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	e.GET("/events", func(c echo.Context) error {
		res := c.Response()
		res.Header().Set(echo.HeaderContentType, "text/event-stream")
		res.WriteHeader(http.StatusOK)
		if _, err := res.Write([]byte("retry: 1000\n\n")); err != nil {
			return err
		}
		res.Flush()
		<-c.Request().Context().Done()
		return nil
	})
	stop := context.AfterFunc(ctx, func() { _ = e.Close() }) // ends Start
	defer stop()
	if err := e.Start(addr); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
