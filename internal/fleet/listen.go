package fleet

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

var errSilent = errors.New("redis does not answer")

// listen holds one Pub/Sub connection. Every trouble ends the connection as a whole, so that the owner always knows
// whether something may have been missed: go-redis's own quiet reconnection would hide it.
func (f *Fleet) listen(ctx context.Context) {
	k := f.scripts.Keys()
	channels := []string{k.NodeUpdated(), k.PoolUpdated(), k.ConfigUpdated()}
	wait := retryFirst
	for ctx.Err() == nil {
		conn := f.scripts.Redis().Subscribe(ctx, channels...)
		drop := func() { _ = conn.Close() } // closed already is as good
		stop := context.AfterFunc(ctx, drop)
		heard, err := f.receive(ctx, conn, len(channels))
		stop()
		drop()
		if heard {
			wait = retryFirst
		}
		if !f.tell(ctx, down{err}) || !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, retryMost)
	}
}

// receive passes on what comes until the connection fails; heard tells whether it ever was up.
func (f *Fleet) receive(ctx context.Context, conn *redis.PubSub, channels int) (heard bool, err error) {
	asked := false
	for {
		m, err := conn.ReceiveTimeout(ctx, f.opt.Ping)
		if err != nil {
			if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
				return heard, err
			}
			if asked {
				return heard, errSilent
			}
			if err := conn.Ping(ctx); err != nil {
				return heard, err
			}
			asked = true
			continue
		}
		asked = false
		switch m := m.(type) {
		case *redis.Subscription:
			if channels--; channels == 0 {
				heard = true
				if !f.tell(ctx, up{}) {
					return heard, ctx.Err()
				}
			}
		case *redis.Message:
			if !f.tell(ctx, touched{m.Channel, m.Payload}) {
				return heard, ctx.Err()
			}
		}
	}
}
