package fleet

import (
	"context"
	"time"

	"berth/lua"
)

// announceEvery is how often an API process says that it takes heartbeats: well within lua.SweepLimits.Blind.
const announceEvery = time.Second

// Hear tells the sweepers that this process takes heartbeats, until ctx ends, and returns nil then: while no API does, no
// node is declared dead for its silence (L11).
func AnnounceAPI(ctx context.Context, scripts *lua.Scripts) error {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		// A failure needs no word: without Redis no heartbeat is taken either.
		telling, cancel := context.WithTimeout(ctx, announceEvery)
		_ = scripts.HearNodes(telling)
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
