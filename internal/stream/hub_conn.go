package stream

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// What the connection tells the switchboard.
type (
	connUp    struct{ conn *redis.PubSub }
	connDown  struct{}
	alive     struct{}
	confirmed struct {
		channel    string
		subscribed bool
	}
	// message is one published event, shared by all readers of its channel.
	message struct {
		channel string
		at      position
		item    Item
	}
)

// drop ends the connection; listen makes a new one.
func (c connUp) drop() { _ = c.conn.Close() } // closed already is as good

// order is what the switchboard wants done on a connection.
type order struct {
	conn       connUp
	sub, unsub []string
	ping, drop bool
}

// listen holds the one Pub/Sub connection and reads it. Every trouble ends the connection as a whole, so that
// the switchboard always knows what is subscribed: go-redis's own quiet reconnection would hide what was missed.
func (h *Hub) listen(ctx context.Context) {
	wait, lost := retryFirst, false
	for ctx.Err() == nil {
		conn := connUp{h.scripts.Redis().Subscribe(ctx)}
		stop := context.AfterFunc(ctx, conn.drop)
		if !h.tell(ctx, conn) {
			stop()
			conn.drop()
			return
		}
		heard, err := h.receive(ctx, conn.conn, lost)
		stop()
		conn.drop()
		if ctx.Err() != nil {
			return
		}
		if heard {
			wait, lost = retryFirst, false
		}
		if !lost { // the next tries are the same trouble
			h.opt.Logger.WarnContext(ctx, "event connection lost", "error", err)
		}
		lost = true
		if !h.tell(ctx, connDown{}) || !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, retryMost/2)
	}
}

// receive passes on what is heard; after a loss it tells that there is something to hear again.
func (h *Hub) receive(ctx context.Context, conn *redis.PubSub, lost bool) (heard bool, err error) {
	for {
		reply, err := conn.Receive(ctx)
		if err != nil {
			return heard, err
		}
		if lost && !heard {
			h.opt.Logger.InfoContext(ctx, "event connection is back")
		}
		heard = true
		var news any = alive{}
		switch m := reply.(type) {
		case *redis.Subscription:
			news = confirmed{m.Channel, m.Kind == "subscribe"}
		case *redis.Message:
			id, data, ok := strings.Cut(m.Payload, " ")
			at, valid := parsePosition(id)
			if !ok || !valid {
				h.opt.Logger.WarnContext(ctx, "not an event", "channel", m.Channel)
				continue
			}
			news = &message{m.Channel, at, newItem(id, []byte(data))}
		}
		if !h.tell(ctx, news) {
			return heard, context.Cause(ctx)
		}
	}
}

func (h *Hub) tell(ctx context.Context, news any) bool {
	select {
	case h.events <- news:
		return true
	case <-ctx.Done():
		return false
	}
}

// obey carries out the switchboard's orders. A failed one ends its connection.
func (h *Hub) obey(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-h.orders:
			if err := carryOut(ctx, o); o.drop || err != nil {
				o.conn.drop()
			}
			h.obeyed <- struct{}{} // has room: one order at a time
		}
	}
}

func carryOut(ctx context.Context, o order) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if len(o.unsub) > 0 {
		if err := o.conn.conn.Unsubscribe(ctx, o.unsub...); err != nil {
			return err
		}
	}
	if len(o.sub) > 0 {
		if err := o.conn.conn.Subscribe(ctx, o.sub...); err != nil {
			return err
		}
	}
	if o.ping {
		return o.conn.conn.Ping(ctx)
	}
	return nil
}
