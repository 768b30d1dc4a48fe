package fleet

import (
	"context"
	"time"

	"berth/lua"
)

// AnnounceAPI reports to the sweepers, until ctx ends, that this process accepts heartbeats; it returns nil then. While no API
// process does, no node is declared dead for missing heartbeats.
func AnnounceAPI(ctx context.Context, scripts *lua.Scripts) error {
	tick := time.NewTicker(lua.ListeningEvery)
	defer tick.Stop()
	for {
		// A failure needs no log line: without Redis, heartbeats are not accepted either.
		callCtx, cancel := context.WithTimeout(ctx, lua.ListeningEvery)
		_ = scripts.MarkListening(callCtx)
		_, _ = scripts.CheckGuard(callCtx) // every process has to know the last grace
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
