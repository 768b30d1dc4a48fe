package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"
)

// front is the load balancer in front of a gateway's processes. It passes a request on to another process only if the first one does not
// accept the connection, as nginx does. It loses the first reply to some calls after the gateway has made all of it, and holds the calls of
// a phase until as many as the barrier needs have come.
type front struct {
	backends []string
	header   http.Header // added to each request: a gateway's own configuration
	proxy    *httputil.ReverseProxy
	// loseEvery is how many calls of the phase storm come for each whose first reply is lost.
	loseEvery int
	barrier   *barrier

	mu        sync.Mutex //nolint:forbidigo // of a fake
	next      int
	arrived   map[call]time.Time
	exchanges []*exchange
}

// exchange is one request to the front.
type exchange struct {
	call   call
	lose   bool
	order  []string // backends
	status int
	// backend has the request. It is empty until one has accepted it.
	backend      string
	began, ended time.Time
	whole        bool // the client has got all of the response
}

type exchangeKey struct{}

func newFront(backends []string, header http.Header, loseEvery, barrierSize int) *front {
	f := &front{backends: backends, header: header, loseEvery: loseEvery, barrier: newBarrier(barrierSize), arrived: map[call]time.Time{}}
	f.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "gateway"
			for name, values := range f.header {
				r.Out.Header[name] = values
			}
		},
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: f.dial},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return f
}

// dial connects to the first backend of a request that accepts the connection.
func (f *front) dial(ctx context.Context, _, _ string) (conn net.Conn, err error) {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	for _, addr := range x.order {
		if conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			x.backend = addr
			return conn, nil
		}
	}
	return nil, err
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var req request
	_ = json.Unmarshal(body, &req) // what is not a call has no topic
	x := f.begin(callOf(req))
	if x.call.phase() == phaseBudget {
		f.barrier.wait(r.Context())
	}
	to := &reply{ResponseWriter: w, x: x}
	defer func() {
		f.end(x, recover() == nil && r.Context().Err() == nil)
		if x.lose || !x.whole {
			panic(http.ErrAbortHandler) // ends the connection
		}
	}()
	f.proxy.ServeHTTP(to, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

func (f *front) begin(c call) *exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &exchange{call: c, began: time.Now()}
	if _, again := f.arrived[c]; !again {
		f.arrived[c] = x.began
		x.lose = f.loseEvery > 0 && c.phase() == phaseStorm && len(f.arrived)%f.loseEvery == 0
	}
	f.next++
	n := f.next % len(f.backends)
	x.order = slices.Concat(f.backends[n:], f.backends[:n])
	f.exchanges = append(f.exchanges, x)
	return x
}

func (f *front) end(x *exchange, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.ended, x.whole = time.Now(), whole
}

// count returns the number of exchanges that match.
func (f *front) count(match func(*exchange) bool) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.exchanges {
		if match(x) {
			n++
		}
	}
	return n
}

// served returns the number of calls of a phase that clients have got an answer of.
func (f *front) served(phase string) int {
	return f.count(func(x *exchange) bool {
		return x.call.phase() == phase && x.whole && !x.lose && x.status == http.StatusOK
	})
}

// lost returns the number of answers that were lost.
func (f *front) lost() int {
	return f.count(func(x *exchange) bool { return x.lose && x.whole && x.status == http.StatusOK })
}

// calls returns when each call first arrived.
func (f *front) calls() map[call]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[call]time.Time{}
	for c, at := range f.arrived {
		if c.topic != "" {
			all[c] = at
		}
	}
	return all
}

// at returns the calls that a backend got before it was dead, but those that ended well before the kill: of the others it may not have recorded
// the end.
func (f *front) at(backend string, kill, dead time.Time) map[call]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	had := map[call]bool{}
	for _, x := range f.exchanges {
		if x.backend == backend && x.began.Before(dead) && (x.ended.IsZero() || x.ended.After(kill.Add(-settling))) {
			had[x.call] = true
		}
	}
	return had
}

// reply passes a response on, unless it is to be lost.
type reply struct {
	http.ResponseWriter

	x      *exchange
	header http.Header // of a lost reply
}

func (r *reply) Header() http.Header {
	if !r.x.lose {
		return r.ResponseWriter.Header()
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *reply) WriteHeader(status int) {
	r.x.status = status
	if !r.x.lose {
		r.ResponseWriter.WriteHeader(status)
	}
}

func (r *reply) Write(b []byte) (int, error) {
	if r.x.lose {
		return len(b), nil
	}
	return r.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls.
func (r *reply) FlushError() error {
	if r.x.lose {
		return nil
	}
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// barrier holds requests until size have come.
type barrier struct {
	mu   sync.Mutex //nolint:forbidigo // of a fake
	left int
	open chan struct{}
}

func newBarrier(size int) *barrier { return &barrier{left: size, open: make(chan struct{})} }

func (b *barrier) wait(ctx context.Context) {
	b.mu.Lock()
	if b.left--; b.left == 0 {
		close(b.open)
	}
	b.mu.Unlock()
	select {
	case <-b.open:
	case <-ctx.Done():
	}
}

// serve serves a handler on a loopback port until stop is called.
func serve(h http.Handler) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not block
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
	}()
	return l.Addr().String(), func() { _ = server.Close() }, nil
}
