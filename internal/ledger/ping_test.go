package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A database whose connections are all in use is slow, and not unavailable: otherwise a burst of writes stops all work.
func TestPing_AllConnectionsInUse_Succeeds(t *testing.T) { // FA8
	each(t, func(t *testing.T, l *Ledger) {
		for range l.write.Stats().MaxOpenConnections {
			tx, err := l.write.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := l.write.BeginTx(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded, "no connection is left")
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute) // otherwise it waits for a connection until the end of the test
		defer cancel()
		require.NoError(t, l.Ping(ctx))
	})
}

func TestPing_DatabaseClosed_IsUnavailable(t *testing.T) { // FA8
	each(t, func(t *testing.T, l *Ledger) {
		require.NoError(t, l.probe.Close())
		require.Error(t, l.Ping(t.Context()))
		l.probe = l.read
		require.NoError(t, l.Ping(t.Context()))
	})
}
