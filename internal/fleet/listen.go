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

// What a listener tells.
type (
	up      struct{} // all channels are subscribed
	down    struct{ err error }
	touched struct{ channel, payload string }
)

// listener holds one Pub/Sub connection. Every trouble ends the connection as a whole, so that who is told always knows
// whether something may have been missed: go-redis's own quiet reconnection would hide it.
type listener struct {
	redis    redis.UniversalClient
	channels []string
	ping     time.Duration // silence after which Redis is asked whether it is there
	// tell hands on an event, and tells whether to go on.
	tell func(ctx context.Context, e any) bool
}

func (l *listener) run(ctx context.Context) {
	wait := retryFirst
	for ctx.Err() == nil {
		conn := l.redis.Subscribe(ctx, l.channels...)
		drop := func() { _ = conn.Close() } // closed already is as good
		stop := context.AfterFunc(ctx, drop)
		heard, err := l.receive(ctx, conn)
		stop()
		drop()
		if heard {
			wait = retryFirst
		}
		if !l.tell(ctx, down{err}) || !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, retryMost)
	}
}

// receive passes on what comes until the connection fails; heard tells whether it ever was up.
func (l *listener) receive(ctx context.Context, conn *redis.PubSub) (heard bool, err error) {
	asked, pending := false, len(l.channels)
	for {
		m, err := conn.ReceiveTimeout(ctx, l.ping)
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
			if pending--; pending == 0 {
				heard = true
				if !l.tell(ctx, up{}) {
					return heard, ctx.Err()
				}
			}
		case *redis.Message:
			if !l.tell(ctx, touched{m.Channel, m.Payload}) {
				return heard, ctx.Err()
			}
		}
	}
}
