package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// BenchmarkFirstToken measures the time of a token that is not merged from Writer.Token to Reader.Next and, alternating, the
// time that Redis alone takes from PUBLISH to a subscriber.
//
//	go test ./internal/stream -run xxx -bench . -benchtime 2000x
func BenchmarkFirstToken(b *testing.B) {
	rdb := benchRedis(b)
	scripts, hub := benchHub(b, rdb)
	pub := NewPublisher(scripts, Options{FlushInterval: time.Nanosecond}) // the window has passed before every token
	ch := lua.Channel{UserID: "alice", ServiceID: "web", TaskID: "t1"}
	require.NoError(b, pub.Open(b.Context(), ch, 1, time.Now()))
	r, err := hub.Subscribe(b.Context(), ch, "", false)
	require.NoError(b, err)
	defer r.Close()
	w := pub.Writer(b.Context(), ch, 1, testBase, nil)

	sub := rdb.Subscribe(b.Context(), "bare")
	defer func() { _ = sub.Close() }()
	_, err = sub.Receive(b.Context())
	require.NoError(b, err)
	messages := sub.Channel()
	payload, err := json.Marshal(berth.Event{Type: berth.EventToken, TaskID: "t1", ServiceID: "web", Stage: "score", TS: 1, Text: "word "})
	require.NoError(b, err)

	var ours, bare []time.Duration
	for b.Loop() {
		begin := time.Now()
		require.NoError(b, w.Token("word "))
		_, err := r.Next(b.Context(), readWithin)
		require.NoError(b, err)
		ours = append(ours, time.Since(begin))
		require.NoError(b, w.Flush(b.Context())) // confirmed: no call is in progress

		begin = time.Now()
		published := make(chan error, 1)
		go func() { published <- rdb.Publish(b.Context(), "bare", payload).Err() }() // like the Writer, do not wait
		<-messages
		bare = append(bare, time.Since(begin))
		require.NoError(b, <-published)
	}
	require.NoError(b, w.Close(b.Context()))
	report(b, "us", ours)
	report(b, "us-bare", bare) // sorts bare, as the previous line sorted ours
	b.ReportMetric(float64(ours[len(ours)/2])/float64(bare[len(bare)/2]), "p50-ratio")
}

// BenchmarkTokenRate writes tokens for two seconds at each rate with the default window and count. It reports the round trips
// per token, and the time of a token beyond its wait to be merged (from a batch's last token to Next).
func BenchmarkTokenRate(b *testing.B) {
	rdb := benchRedis(b)
	scripts, hub := benchHub(b, rdb)
	for _, perSecond := range []int{2, 10, 50, 500, 5000} {
		b.Run(fmt.Sprint(perSecond), func(b *testing.B) {
			for b.Loop() {
				oneRate(b, scripts, hub, perSecond)
			}
		})
	}
}

func oneRate(b *testing.B, scripts *lua.Scripts, hub *Hub, perSecond int) {
	b.Helper()
	pub := NewPublisher(scripts, Options{})
	ch := lua.Channel{UserID: "alice", ServiceID: "web", TaskID: lua.NewProducer()}
	require.NoError(b, pub.Open(b.Context(), ch, 1, time.Now()))
	r, err := hub.Subscribe(b.Context(), ch, "", false)
	require.NoError(b, err)
	defer r.Close()
	n := 2 * perSecond
	handed := make([]time.Time, n)
	w := pub.Writer(b.Context(), ch, 1, testBase, nil)
	spoken := make(chan struct{})
	go func() {
		defer close(spoken)
		begin := time.Now()
		for i := range n {
			<-time.After(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
			handed[i] = time.Now()
			_ = w.Token("word ") // an error ends the loop below
		}
		_ = w.Flush(b.Context())
	}()
	var arrived []time.Time // time of the batch that ends with token ends[i]
	var ends []int
	for got := 0; got < n; {
		item, err := r.Next(b.Context(), readWithin)
		require.NoError(b, err)
		var ev berth.Event
		require.NoError(b, json.Unmarshal(item.Data, &ev))
		got += max(ev.Count, 1)
		arrived, ends = append(arrived, time.Now()), append(ends, got-1)
	}
	<-spoken
	var full, all []time.Duration // full: batches sent because of their count, and single tokens
	last := -1
	for i, end := range ends {
		if size := end - last; size == 8 {
			full = append(full, arrived[i].Sub(handed[end]))
		}
		for k := last + 1; k <= end; k++ {
			all = append(all, arrived[i].Sub(handed[k]))
		}
		last = end
	}
	require.NoError(b, w.Close(b.Context()))
	b.ReportMetric(float64(w.Stats().RoundTrips)/float64(w.Stats().Tokens), "trips/token")
	report(b, "us-token", all)
	if len(full) > 0 {
		report(b, "us-full-batch", full)
	}
}

// BenchmarkReaders opens the given number of readers on 100 streams and sends one event to each stream.
func BenchmarkReaders(b *testing.B) {
	rdb := benchRedis(b)
	scripts, hub := benchHub(b, rdb)
	pub := NewPublisher(scripts, Options{})
	const streams = 100
	chs := make([]lua.Channel, streams)
	for i := range chs {
		chs[i] = lua.Channel{UserID: "alice", ServiceID: "web", TaskID: fmt.Sprintf("t%d", i)}
		require.NoError(b, pub.Open(b.Context(), chs[i], 1, time.Now()))
	}
	readers := make([]*Reader, 10_000)
	before := inUse()
	for i := range readers {
		var err error
		readers[i], err = hub.Subscribe(b.Context(), chs[i%streams], "", false)
		require.NoError(b, err)
	}
	perReader := float64(inUse()-before) / float64(len(readers))
	for b.Loop() {
		for _, ch := range chs {
			require.NoError(b, pub.Publish(b.Context(), ch, 1, progress))
		}
		for _, r := range readers {
			_, err := r.Next(b.Context(), readWithin)
			require.NoError(b, err)
		}
	}
	b.ReportMetric(perReader, "B/reader")
	for _, r := range readers {
		r.Close()
	}
}

func report(b *testing.B, unit string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	us := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000 }
	b.ReportMetric(us(0.50), "p50-"+unit)
	b.ReportMetric(us(0.99), "p99-"+unit)
}

func benchRedis(b *testing.B) *redis.Client {
	b.Helper()
	return testredis.Start(b).Client()
}

func benchHub(b *testing.B, rdb *redis.Client) (*lua.Scripts, *Hub) {
	b.Helper()
	scripts := lua.New(rdb, lua.Keys{Cell: testredis.Cell(b)})
	require.NoError(b, scripts.Load(b.Context()))
	hub := NewHub(scripts, HubOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- hub.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-stopped)
	})
	return scripts, hub
}

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
