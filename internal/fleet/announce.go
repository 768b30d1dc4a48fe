package fleet

import (
	"context"
	"time"

	"berth/lua"
)

// Hear tells the sweepers that this process takes heartbeats, until ctx ends, and returns nil then: while no API does, no
// node is declared dead for its silence (L11).
func AnnounceAPI(ctx context.Context, scripts *lua.Scripts) error {
	tick := time.NewTicker(lua.ListeningEvery)
	defer tick.Stop()
	for {
		// A failure needs no word: without Redis no heartbeat is taken either.
		telling, cancel := context.WithTimeout(ctx, lua.ListeningEvery)
		_ = scripts.MarkListening(telling)
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
