package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/pause"
	"berth/internal/setting"
)

// maxLedgerPause is the longest time between two attempts to open the database at the start.
const maxLedgerPause = 5 * time.Second

// openLedger opens the database. While that is unavailable, it retries, and the probe reports why. The error is a problem that lasts, such
// as a wrong password or a missing right.
func openLedger(ctx context.Context, src ledger.Source, logger *slog.Logger, probe *health.Probe) (*ledger.Ledger, error) {
	dsn, err := src.Address()
	if err != nil {
		return nil, err
	}
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, setting.Wrong(fmt.Errorf("BERTH_DATABASE: create the directory of the file: %w; let the user of berth write there, or set another file", err))
		}
	}
	last := ""
	for backoff := pause.NewBackoff(500*time.Millisecond, maxLedgerPause); ; {
		l, err := ledger.OpenSource(ctx, src, logger)
		problem := ledger.Diagnose(err)
		switch {
		case err == nil:
			return l, nil
		case problem == nil:
			return nil, fmt.Errorf("BERTH_DATABASE: %w", err)
		case problem.Lasting:
			return nil, problem
		}
		probe.Waiting(health.Database, problem)
		if problem.Code != last {
			logger.WarnContext(ctx, "waiting for the database", "setting", problem.Setting, "error", problem)
			last = problem.Code
		}
		if !backoff.Wait(ctx) {
			return nil, ctx.Err()
		}
	}
}
