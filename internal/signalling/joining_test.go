package signalling

import (
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// B9: a unit that accepts a connection after it has lost the conference, as one does that was suspended meanwhile, is not used.
func TestProxy_UnitLosesConferenceWhileConnecting_NextOwnerIsUsed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.unit("u1", "key-a"), f.unit("u2", "key-b")
	f.open(a)
	suspended, resumed := make(chan struct{}), make(chan struct{})
	a.joining = func() { close(suspended); <-resumed }
	joined := make(chan *websocket.Conn, 1)
	go func() { c, _ := f.dial(f.token("ann"), "/rtc"); joined <- c }()
	<-suspended
	f.waiting()
	close(resumed)
	f.open(b)
	c := <-joined
	require.NotNil(t, c)
	put(t, b.peer().Conn, frame{data: []byte{1}})
	require.Equal(t, []byte{1}, next(t, c).data, "the first message is the next owner's")
}

// B9: LiveKit's client for Go ignores the request to connect again, and the end of its connection, until its media is connected. The
// request is repeated until the client leaves, or must have joined.
func TestProxy_OwnerChangesWhileClientJoins_RequestedUntilItLeaves(t *testing.T) {
	t.Parallel()
	moves := leave{actionReconnect, reasonMoved}
	for name, test := range map[string]struct {
		joining time.Duration
		then    func(t *testing.T, f *fixture, c *websocket.Conn)
	}{
		"follows late": {time.Hour, func(t *testing.T, _ *fixture, c *websocket.Conn) {
			for range 3 {
				require.Equal(t, moves, dismissal(t, c))
			}
			put(t, c, leaveFrame(false, leave{actionDisconnect, reasonClient}))
		}},
		"follows late, in JSON": {time.Hour, func(t *testing.T, _ *fixture, c *websocket.Conn) {
			require.Equal(t, moves, dismissal(t, c))
			put(t, c, leaveFrame(true, leave{actionDisconnect, reasonClient}))
		}},
		"closes the connection": {time.Hour, func(t *testing.T, _ *fixture, c *websocket.Conn) {
			require.Equal(t, moves, dismissal(t, c))
			require.NoError(t, c.Close())
		}},
		"is removed": {time.Hour, func(t *testing.T, f *fixture, c *websocket.Conn) {
			require.Equal(t, moves, dismissal(t, c))
			f.remove("ann")
			require.Eventually(t, func() bool { return dismissal(t, c) == leave{actionDisconnect, reasonRemoved} }, waitLimit, time.Millisecond)
		}},
		"must have joined": {0, func(t *testing.T, _ *fixture, c *websocket.Conn) {
			require.Equal(t, moves, dismissal(t, c))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.proxy.again, f.proxy.joining = 20*time.Millisecond, test.joining
			a, b := f.unit("u1", "key-a"), f.unit("u2", "key-b")
			f.open(a)
			c, _ := f.join(a, "ann")
			f.connectionsAre(1)
			f.open(b)
			test.then(t, f, c)
			f.connectionsAre(0)
		})
	}
}
