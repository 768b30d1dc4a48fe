//go:build faults

package signalling

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/identity"
)

// peerEnv makes the test binary run the clients and the unit, so that the memory of this process is the proxy's.
const peerEnv = "BERTH_TEST_SIGNAL_PEERS"

type peers struct {
	Proxy, Token string
	Connections  int
}

// TestLoadPeers is the other process of TestProxy_ManyIdleConnections. It writes its unit's address, then the latencies.
func TestLoadPeers(t *testing.T) {
	if !slices.Contains(os.Environ(), peerEnv+"=1") {
		t.Skip("runs in a process of TestProxy_ManyIdleConnections_BoundedMemory")
	}
	up := websocket.Upgrader{ReadBufferSize: 512, WriteBufferSize: 512}
	opened := make(chan *websocket.Conn, 6000)
	go func() { // pings each connection every 10 s, as a media server does
		for range time.Tick(2 * time.Millisecond) {
			c := <-opened
			_ = c.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
			opened <- c
		}
	}()
	unit := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		opened <- c
		for {
			kind, data, err := c.ReadMessage()
			if err != nil || c.WriteMessage(kind, data) != nil {
				return
			}
		}
	}))
	fmt.Fprintln(os.Stdout, "ws"+strings.TrimPrefix(unit.URL, "http"))
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	var p peers
	require.NoError(t, json.Unmarshal(in.Bytes(), &p))
	conns := make([]*websocket.Conn, p.Connections)
	var g sync.WaitGroup
	for w := range 32 {
		g.Go(func() {
			for i := w; i < p.Connections; i += 32 {
				d := websocket.Dialer{ReadBufferSize: 512, WriteBufferSize: 512, HandshakeTimeout: time.Minute}
				c, _, err := d.Dial(p.Proxy+"/rtc?access_token="+p.Token, nil)
				if err != nil {
					panic(err)
				}
				conns[i] = c
			}
		})
	}
	g.Wait()
	fmt.Fprintln(os.Stdout, "connected")
	for _, c := range conns[1:] { // a client reads all the time, and so responds to pings
		go func() {
			for {
				if _, _, err := c.ReadMessage(); err != nil {
					return
				}
			}
		}()
	}
	in.Scan()
	direct, _, err := (&websocket.Dialer{}).Dial("ws"+strings.TrimPrefix(unit.URL, "http"), nil)
	require.NoError(t, err)
	echo := func(c *websocket.Conn) time.Duration {
		begun := time.Now()
		require.NoError(t, c.WriteMessage(websocket.BinaryMessage, make([]byte, 200)))
		_, _, err := c.ReadMessage()
		require.NoError(t, err)
		return time.Since(begun)
	}
	var through, alone []time.Duration
	for range 5000 {
		through, alone = append(through, echo(conns[0])), append(alone, echo(direct))
	}
	slices.Sort(through)
	slices.Sort(alone)
	fmt.Fprintf(os.Stdout, "round trip through the proxy p50 %s p99 %s, without p50 %s p99 %s\n", through[2500], through[4950], alone[2500], alone[4950])
	in.Scan()
	os.Exit(0) //nolint:revive // with its connections
}

// The proxy holds 5,000 idle connections with little memory each. The other side runs in another process.
func TestProxy_ManyIdleConnections_BoundedMemory(t *testing.T) {
	const connections, limit = 5000, 40 << 10
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	files.Cur = files.Max
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files))
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLoadPeers$", "-test.timeout=5m")
	cmd.Env, cmd.Stderr = append(os.Environ(), peerEnv+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	out := bufio.NewScanner(pipe)
	require.True(t, out.Scan())
	f.nodes.all["u1"] = berth.Node{NodeSpec: berth.NodeSpec{ID: "u1", Kind: berth.NodeMedia, ClientURL: out.Text(), KeyID: "key-a", Incarnation: incarnation("u1")}}
	f.open(&unit{id: "u1"})
	token, err := f.tokens.Issue(identity.Participation{ConferenceID: conference, E164: number, Identity: "ann", Role: berth.RoleParticipant})
	require.NoError(t, err)
	before := memory()
	b, err := json.Marshal(peers{"ws" + strings.TrimPrefix(f.server.URL, "http"), token, connections})
	require.NoError(t, err)
	begun, used := time.Now(), cpu(t)
	_, err = in.Write(append(b, '\n'))
	require.NoError(t, err)
	require.True(t, out.Scan())
	require.Equal(t, "connected", out.Text())
	f.connectionsAre(connections)
	t.Logf("%d connections in %s, %s of processor time each", connections, time.Since(begun).Round(time.Millisecond), (cpu(t)-used)/connections)
	each := (memory() - before) / connections
	t.Logf("%d bytes of memory for each", each)
	require.Less(t, each, uint64(limit))
	idle, from := cpu(t), time.Now()
	<-time.After(10 * time.Second)
	t.Logf("%.2f %% of a processor while idle", 100*(cpu(t)-idle).Seconds()/time.Since(from).Seconds())
	_, err = in.Write([]byte("\n"))
	require.NoError(t, err)
	require.True(t, out.Scan())
	t.Log(out.Text())
	require.NoError(t, in.Close())
	f.connectionsAre(0)
	runtime.GC()
	require.Less(t, memory(), before+connections*(4<<10), "released")
	require.NotContains(t, f.log.String(), token)
}

// memory returns what the heap and the stacks use.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// cpu returns the processor time of this process.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
