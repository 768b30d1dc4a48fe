package ledger

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testdb"
)

// cutter passes the connections of PostgreSQL on. When it is armed, it closes the next connection that commits, after the server
// has replied: the transaction is stored, and its caller does not know.
type cutter struct {
	armed atomic.Bool
	cuts  atomic.Int64
	open  sync.WaitGroup
}

// behind returns the address of a database behind a cutter.
func behind(t *testing.T, dsn string) (*cutter, string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	socket := fmt.Sprintf(".s.PGSQL.%d", cfg.Port)
	dir, err := os.MkdirTemp("", "cut") //nolint:usetesting // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, socket))
	require.NoError(t, err)
	c := &cutter{}
	c.open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(context.Background(), "unix", filepath.Join(cfg.Host, socket))
			if err != nil {
				_ = client.Close()
				continue
			}
			c.pass(client, server)
		}
	})
	t.Cleanup(func() { _ = l.Close(); c.open.Wait() })
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return c, u.String()
}

func (c *cutter) pass(client, server net.Conn) {
	var cutting atomic.Bool
	end := func() { _, _ = client.Close(), server.Close() }
	c.open.Go(func() {
		defer end()
		for buf := make([]byte, 64<<10); ; {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if bytes.Contains(buf[:n], []byte("commit\x00")) && c.armed.CompareAndSwap(true, false) {
				cutting.Store(true)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	c.open.Go(func() {
		defer end()
		for buf := make([]byte, 64<<10); ; {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if cutting.Load() {
				c.cuts.Add(1)
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
}

// retrying returns a function that makes a call again whose first reply to a commit was lost.
func retrying(t *testing.T, link *cutter) func(call func() error) {
	lost := 0
	return func(call func() error) {
		t.Helper()
		link.armed.Store(true)
		requireCode(t, berth.CodeUnavailable, call())
		lost++
		require.EqualValues(t, lost, link.cuts.Load(), "the reply of a commit was lost")
		require.NoError(t, call())
	}
}

// The reply to each commit in the life of a task is lost once. Every call is retried, as its callers do, and has the same result as
// without the loss.
func TestLedger_ReplyToEachCommitLost_EffectsOnce(t *testing.T) { // T18, T19, P6
	t.Parallel()
	link, dsn := behind(t, testdb.Postgres(t))
	l := open(t, dsn)
	ctx := t.Context()
	retried := retrying(t, link)
	g := Grant{UserID: "alice", Amount: 10, Reason: "test", Key: "k"}
	retried(func() error { _, _, _, err := l.AddCredits(ctx, g); return err })
	require.EqualValues(t, 10, balance(t, l, "alice"))

	task := priced("alice", 3)
	task.Key = "key"
	retried(func() error {
		got, _, err := l.CreateTask(ctx, task)
		if err == nil {
			require.Equal(t, berth.TierPaid, got.Tier)
		}
		return err
	})
	require.EqualValues(t, 7, balance(t, l, "alice"))
	var a Attempt
	retried(func() (err error) {
		a, err = l.BeginAttempt(ctx, task.Ref(), 0, "OCR_PENDING")
		return err
	})
	require.EqualValues(t, 2, a.Fence)
	retried(func() error {
		return l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: a.Fence, Status: "OCR_PENDING", Provider: "local"})
	})
	failed := result(task, 0, a.Fence, "").ModelCall
	failed.Code = berth.CodeInvalidOutput
	retried(func() error { return l.FailedCall(ctx, failed) })
	repaired := result(task, 0, a.Fence, "text")
	repaired.Call = 1
	retried(func() error { _, err := l.FinishStep(ctx, repaired); return err })
	calls, err := l.ModelCalls(ctx, task.Ref())
	require.NoError(t, err)
	require.Len(t, calls, 3, "the interrupted attempt, the failed call and its repair")
	got, err := l.GetTask(ctx, task.Ref())
	require.NoError(t, err)
	require.EqualValues(t, 20, got.Usage.InputTokens)
	retried(func() error {
		_, _, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskFailed, Code: berth.CodeInternal})
		return err
	})
	require.EqualValues(t, 10, balance(t, l, "alice"))
	events := map[AuditEvent]int{}
	for _, e := range trail(t, l, task.Ref()) {
		events[e.Event]++
	}
	require.Equal(t, map[AuditEvent]int{AuditEnqueue: 1, AuditStart: 1, AuditError: 1}, events)
	retried(func() error { return l.EraseTask(ctx, task.Ref()) })

	withdrawn := priced("alice", 4)
	create(t, l, withdrawn)
	retried(func() error { return l.WithdrawTask(ctx, withdrawn.Ref(), withdrawn.RequestHash) })
	require.EqualValues(t, 10, balance(t, l, "alice"))
}
