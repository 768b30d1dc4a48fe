package app

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/testdb"
)

// A process that starts before its database waits, and states why. What waiting does not change is returned.
func TestOpenLedger_DatabaseUnavailable_WaitsAndReports(t *testing.T) { // FI2, FI9
	t.Parallel()
	server := testdb.Start(t)
	url := server.Database(t)
	server.Kill()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	probe := health.New("test", logger)
	opened := make(chan *ledger.Ledger, 1)
	go func() {
		l, err := openLedger(t.Context(), ledger.Source{URL: url}, logger, probe)
		if err != nil {
			t.Errorf("open: %v", err)
		}
		opened <- l
	}()
	reason := func() health.Reason {
		d := probe.Report().Dependencies[health.Database]
		if d.Status != health.Starting || d.Reason == nil {
			return health.Reason{}
		}
		return *d.Reason
	}
	require.Eventually(t, func() bool { return reason().Code == "unreachable" }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, "BERTH_DATABASE", reason().Setting)
	require.False(t, probe.Report().Ready())
	server.Restart(t)
	l := <-opened
	require.NoError(t, l.Close())
	require.Contains(t, log.String(), `level=WARN msg="waiting for the database" setting=BERTH_DATABASE`)

	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	_, err = openLedger(t.Context(), ledger.Source{URL: server.URLOf("not-" + cfg.Database)}, logger, probe)
	require.ErrorContains(t, err, `database "not-`+cfg.Database+`" does not exist (SQLSTATE 3D000): the database does not exist: create it, or correct its name in BERTH_DATABASE`)
}
