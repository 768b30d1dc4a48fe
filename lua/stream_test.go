package lua_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// streamOnBoth runs a test on a real Redis and on the embedded one.
func streamOnBoth(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, testredis.Start(t).Client())
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		test(t, rdb)
	})
}

// streamCase is one stream in its own cell.
type streamCase struct {
	t      *testing.T
	rdb    *redis.Client
	s      *lua.Scripts
	ch     lua.Channel
	meta   string
	stream string
}

func newStreamCase(t *testing.T, rdb *redis.Client) streamCase {
	t.Helper()
	keys := lua.Keys{Cell: testredis.Cell(t)}
	ch := lua.Channel{UserID: "alice", ServiceID: "web", TaskID: "t1"}
	return streamCase{
		t: t, rdb: rdb, s: lua.New(rdb, keys), ch: ch,
		meta:   keys.StreamMeta(ch.UserID, ch.ServiceID, ch.TaskID),
		stream: keys.Stream(ch.UserID, ch.ServiceID, ch.TaskID),
	}
}

// set writes a stream with the given state, gen=100, seq=2, fence=3 and two entries, of producer p.
func (c streamCase) set(state string) {
	ctx := c.t.Context()
	require.NoError(c.t, c.rdb.HSet(ctx, c.meta, "state", state, "gen", 100, "seq", 2, "fence", 3, "producer:p", "2 100-2", "producers", "p\n").Err())
	require.NoError(c.t, c.rdb.PExpire(ctx, c.meta, time.Hour).Err())
	for _, id := range []string{"100-1", "100-2"} {
		require.NoError(c.t, c.rdb.XAdd(ctx, &redis.XAddArgs{
			Stream: c.stream, ID: id, Values: []string{"e", "before"},
		}).Err())
	}
	require.NoError(c.t, c.rdb.PExpire(ctx, c.stream, time.Hour).Err())
}

// copy keeps the stream as it is now. The function that it returns restores it, as a master does that lacks what was written later.
func (c streamCase) copy() (restore func()) {
	c.t.Helper()
	ctx := c.t.Context()
	for _, key := range []string{c.meta, c.stream} {
		require.NoError(c.t, c.rdb.Copy(ctx, key, key+":older", 0, true).Err())
	}
	return func() {
		c.t.Helper()
		for _, key := range []string{c.meta, c.stream} {
			require.NoError(c.t, c.rdb.Del(ctx, key).Err())
			require.NoError(c.t, c.rdb.Copy(ctx, key+":older", key, 0, true).Err())
		}
	}
}

// text returns the stream as a string: state, gen, seq and fence, then its entries with their ids.
func (c streamCase) text() string {
	ctx := c.t.Context()
	m, err := c.rdb.HMGet(ctx, c.meta, "state", "gen", "seq", "fence").Result()
	require.NoError(c.t, err)
	var out []string
	for _, v := range m {
		text, _ := v.(string)
		out = append(out, text)
	}
	entries, err := c.rdb.XRange(ctx, c.stream, "-", "+").Result()
	require.NoError(c.t, err)
	for _, e := range entries {
		data, _ := e.Values["e"].(string)
		out = append(out, e.ID+"="+data)
	}
	return strings.Join(out, " ")
}

// append appends events of a new producer.
func (c streamCase) append(fence int64, events ...lua.StreamEntry) (lua.AppendResult, error) {
	return c.s.AppendEvents(c.t.Context(), c.ch, lua.Append{Producer: lua.NewProducer(), First: 1, Fence: fence, Events: events})
}

func streamEntries(data ...string) []lua.StreamEntry {
	var out []lua.StreamEntry
	for _, d := range data {
		out = append(out, lua.StreamEntry{Type: berth.EventToken, Data: d})
	}
	return out
}

const twoBefore = " 100-1=before 100-2=before"

func TestAppendEvents_StreamState_DecidesResult(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, state       string
		producer          string // its last two events were confirmed
		confirmed         int
		fence             int64
		code, last, after string
	}{
		{"same fence", "open", "new", 0, 3, lua.StreamOK, "100-4", "open 100 4 3" + twoBefore + " 100-3=a 100-4=b"},
		{"newer fence raises the fence", "open", "new", 0, 7, lua.StreamOK, "100-4", "open 100 4 7" + twoBefore + " 100-3=a 100-4=b"},
		{"the confirmed event is stored", "open", "p", 2, 3, lua.StreamOK, "100-4", "open 100 4 3" + twoBefore + " 100-3=a 100-4=b"},
		{"older fence", "open", "new", 0, 2, lua.StreamFenced, "100-2", "open 100 2 3" + twoBefore},
		{"ended", "ended", "new", 0, 3, lua.StreamEnded, "100-2", "ended 100 2 3" + twoBefore},
		{"ended takes precedence over the fence", "ended", "new", 0, 9, lua.StreamEnded, "100-2", "ended 100 2 3" + twoBefore},
		{"absent", "", "new", 0, 3, lua.StreamAbsent, "", "   "},
		{"absent, newer fence", "", "new", 0, 9, lua.StreamAbsent, "", "   "},
		{"redis lost an event", "open", "p", 3, 3, lua.StreamLost, "100-2", "open 100 2 3" + twoBefore},
		{"all events of the producer were in another generation", "open", "q", 2, 3, lua.StreamLost, "100-2", "open 100 2 3" + twoBefore},
	}
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				c := newStreamCase(t, rdb)
				if tt.state != "" {
					c.set(tt.state)
				}
				res, err := c.s.AppendEvents(t.Context(), c.ch, lua.Append{
					Producer: tt.producer, First: tt.confirmed + 1, Confirmed: tt.confirmed, Fence: tt.fence, Events: streamEntries("a", "b"),
				})
				require.NoError(t, err)
				require.Equal(t, lua.AppendResult{Code: tt.code, LastID: tt.last}, res)
				require.Equal(t, tt.after, c.text())
			})
		}
	})
}

func TestAppendEvents_SameNumber_AppendsOnce(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newStreamCase(t, rdb)
		c.set("open")
		for range 3 {
			res, err := c.s.AppendEvents(t.Context(), c.ch, lua.Append{Producer: "p", First: 3, Confirmed: 2, Fence: 3, Events: streamEntries("a")})
			require.NoError(t, err)
			require.Equal(t, lua.StreamOK, res.Code)
		}
		require.Equal(t, "open 100 3 3"+twoBefore+" 100-3=a", c.text())
		for range 100 { // the number of remembered producers is bounded
			_, err := c.append(3, streamEntries("x")...)
			require.NoError(t, err)
		}
		recent, err := rdb.HGet(t.Context(), c.meta, "producers").Result()
		require.NoError(t, err)
		require.Len(t, strings.Fields(recent), 64)
		fields, err := rdb.HLen(t.Context(), c.meta).Result()
		require.NoError(t, err)
		require.Equal(t, int64(5+64), fields)
	})
}

func TestAppendEvents_OnceType_AppendsOnce(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newStreamCase(t, rdb)
		c.set("open")
		start := lua.StreamEntry{Type: berth.EventStart, Once: true, Data: "start"}
		res, err := c.append(3, append([]lua.StreamEntry{start, start}, streamEntries("a")...)...)
		require.NoError(t, err)
		require.Equal(t, "100-4", res.LastID)
		res, err = c.append(4, start)
		require.NoError(t, err)
		require.Equal(t, lua.AppendResult{Code: lua.StreamOK, LastID: "100-4"}, res)
		require.Equal(t, "open 100 4 4"+twoBefore+" 100-3=start 100-4=a", c.text())
	})
}

func TestAppendEvents_OpenStream_PublishesEachEvent(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newStreamCase(t, rdb)
		c.set("open")
		sub := rdb.Subscribe(t.Context(), c.s.Keys().Channel("alice", "web", "t1"))
		defer func() { require.NoError(t, sub.Close()) }()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		_, err = c.append(3, streamEntries("a b", "c")...)
		require.NoError(t, err)
		_, _, err = c.s.EndStream(t.Context(), c.ch, "bye", time.Minute, 0)
		require.NoError(t, err)
		for _, want := range []string{"100-3 a b", "100-4 c", "100-5 bye"} {
			m, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, m.Payload)
		}
	})
}

// The first append creates the stream, which must not outlive its metadata.
func TestAppendEvents_FirstAppend_SetsExpiry(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newStreamCase(t, rdb)
		_, err := c.s.OpenStream(t.Context(), c.ch, 1, time.Hour, "")
		require.NoError(t, err)
		_, err = c.append(1, streamEntries("a")...)
		require.NoError(t, err)
		for _, key := range []string{c.meta, c.stream} {
			left, err := rdb.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.InDelta(t, time.Hour, left, float64(time.Minute), key)
		}
	})
}

func TestOpenStream_StreamState_DecidesResult(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, state, known string
		fence              int64
		code               string
		after              string // G is the generation that this call starts
	}{
		{"new", "", "", 3, lua.StreamOK, "open G 0 3"},
		{"open", "open", "", 3, lua.StreamExists, "open 100 2 3" + twoBefore},
		{"newer fence raises the fence", "open", "", 5, lua.StreamExists, "open 100 2 5" + twoBefore},
		{"older fence does not lower", "open", "", 1, lua.StreamExists, "open 100 2 3" + twoBefore},
		{"ended stays ended", "ended", "", 9, lua.StreamEnded, "ended 100 2 3" + twoBefore},
		{"ended and lost", "ended", "100-9", 9, lua.StreamEnded, "ended 100 2 3" + twoBefore},
		{"known entry is stored", "open", "100-2", 3, lua.StreamExists, "open 100 2 3" + twoBefore},
		{"known entry was lost", "open", "100-3", 3, lua.StreamOK, "open G 0 3" + twoBefore},
		{"known entry of another generation", "open", "99-7", 3, lua.StreamExists, "open 100 2 3" + twoBefore},
	}
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				c := newStreamCase(t, rdb)
				if tt.state != "" {
					c.set(tt.state)
				}
				before, err := rdb.Time(t.Context()).Result()
				require.NoError(t, err)
				code, err := c.s.OpenStream(t.Context(), c.ch, tt.fence, time.Hour, tt.known)
				require.NoError(t, err)
				require.Equal(t, tt.code, code)
				gen, err := rdb.HGet(t.Context(), c.meta, "gen").Result()
				require.NoError(t, err)
				require.Equal(t, strings.ReplaceAll(tt.after, "G", gen), c.text())
				if strings.Contains(tt.after, "G") {
					ms, err := strconv.ParseInt(gen, 10, 64)
					require.NoError(t, err)
					require.GreaterOrEqual(t, ms, before.UnixMilli())
					res, err := c.append(tt.fence, streamEntries("x")...)
					require.NoError(t, err)
					require.Equal(t, gen+"-1", res.LastID)
				}
			})
		}
	})
}

// A new generation is higher than all earlier ones, even if the clock is behind them.
func TestOpenStream_ClockBehindStream_GenerationIncreases(t *testing.T) {
	t.Parallel()
	const ahead = "99999999999999" // ms, far from now
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		for name, known := range map[string]string{"entries only": "", "metadata too": ahead + "-9"} {
			t.Run(name, func(t *testing.T) {
				c := newStreamCase(t, rdb)
				require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{
					Stream: c.stream, ID: ahead + "-4", Values: []string{"e", "old"},
				}).Err())
				if known != "" {
					require.NoError(t, rdb.HSet(t.Context(), c.meta, "state", "open", "gen", ahead, "seq", 4, "fence", 1).Err())
				}
				code, err := c.s.OpenStream(t.Context(), c.ch, 1, time.Hour, known)
				require.NoError(t, err)
				require.Equal(t, lua.StreamOK, code)
				res, err := c.append(1, streamEntries("new")...)
				require.NoError(t, err)
				require.Equal(t, "100000000000000-1", res.LastID)
			})
		}
	})
}

func TestEndStream_StreamState_DecidesResult(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, state       string
		code, last, after string
	}{
		{"open", "open", lua.StreamOK, "100-3", "ended 100 3 3" + twoBefore + " 100-3=bye"},
		{"ended", "ended", lua.StreamEnded, "100-2", "ended 100 2 3" + twoBefore},
		{"absent", "", lua.StreamAbsent, "", "   "},
	}
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				c := newStreamCase(t, rdb)
				if tt.state != "" {
					c.set(tt.state)
				}
				code, last, err := c.s.EndStream(t.Context(), c.ch, "bye", time.Minute, 0)
				require.NoError(t, err)
				require.Equal(t, tt.code, code)
				require.Equal(t, tt.last, last)
				require.Equal(t, tt.after, c.text())
				if tt.code != lua.StreamOK {
					return
				}
				for _, key := range []string{c.meta, c.stream} {
					left, err := rdb.PTTL(t.Context(), key).Result()
					require.NoError(t, err)
					require.InDelta(t, time.Minute, left, float64(time.Second), key)
				}
			})
		}
	})
}

// Trimming keeps the newest entries, and the trimmed stream expires.
func TestEndStream_LengthLimit_KeepsNewestEntries(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newStreamCase(t, rdb)
		_, err := c.s.OpenStream(t.Context(), c.ch, 1, time.Hour, "")
		require.NoError(t, err)
		for range 10 {
			_, err = c.append(1, streamEntries(strings.Split(strings.Repeat("x", 100), "")...)...)
			require.NoError(t, err)
		}
		_, last, err := c.s.EndStream(t.Context(), c.ch, "bye", time.Minute, 200)
		require.NoError(t, err)
		n, err := rdb.XLen(t.Context(), c.stream).Result()
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, int64(200))
		require.Less(t, n, int64(400)) // Redis trims whole nodes of 100
		state, newest, err := c.s.ReadStream(t.Context(), c.ch, strings.Replace(last, "-1001", "-1000", 1), 10)
		require.NoError(t, err)
		require.Equal(t, lua.StreamState{Exists: true, Ended: true, Fence: 1, LastID: last}, state)
		require.Len(t, newest, 1)
		require.Equal(t, "bye", newest[0].Data)

		left, err := rdb.PTTL(t.Context(), c.stream).Result()
		require.NoError(t, err)
		require.Positive(t, left)
	})
}

func TestStreamState_AbsentThenOpen_ReturnsState(t *testing.T) {
	t.Parallel()
	streamOnBoth(t, func(t *testing.T, rdb *redis.Client) {
		c := newStreamCase(t, rdb)
		state, err := c.s.StreamState(context.Background(), c.ch)
		require.NoError(t, err)
		require.Equal(t, lua.StreamState{}, state)
		c.set("open")
		state, err = c.s.StreamState(t.Context(), c.ch)
		require.NoError(t, err)
		require.Equal(t, lua.StreamState{Exists: true, Fence: 3, LastID: "100-2"}, state)
	})
}
