package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"berth"
	"berth/client"
	"berth/internal/pause"
)

const (
	// openaiCalls is how many calls are made one after another, and then as many of which some are concurrent.
	openaiCalls = 500
	// openaiStreams are read concurrently: each has openaiChunks chunks, one every openaiPause.
	openaiStreams, openaiChunks, openaiPause = parallel, 500, 10 * time.Millisecond
	// openaiRounds is how often the ways alternate where calls are concurrent.
	openaiRounds = 3

	openaiModel = "bench"
	firstChunk  = "first chunk, one call after another"
	bareProxy   = "bare Go reverse proxy"
	peerGateway = "@portkey-ai/gateway"
)

var firstChunkBusy = fmt.Sprintf("first chunk, %d concurrent calls", parallel)

// way is what is between the same clients and the same provider, with what was measured of it.
type way struct {
	name      string
	url       string // of the protocol
	model     string
	header    http.Header
	http      *http.Client
	processes []child

	// first are the times until the first chunk, of calls one after another, and busy those of concurrent ones. late are the times from when the
	// provider sent a chunk until the client had it.
	first, busy, late latencies
	// idle is the processor time of a second without calls, and used that of streams beyond it.
	idle, used time.Duration
}

// openaiProvider is the provider of all ways. Its answers are changed while they run.
type openaiProvider struct{ atomic.Pointer[provider] }

func (p *openaiProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.Load().ServeHTTP(w, r) }

// openai compares direct and durable calls with those through a proxy that does nothing else, and through another gateway. Durable ones are
// also compared with a workflow that does nothing else.
func openai(ctx context.Context, r *Run) (err error) {
	p := &openaiProvider{}
	p.Store(&provider{tokens: 1})
	server, err := listen(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	proxy, err := proxyWay(ctx, server.Addr)
	if err != nil {
		return err
	}
	defer proxy.kill()
	others := []*way{proxy}
	peer, missing, err := r.peerWay(ctx, server.Addr)
	if err != nil {
		return err
	}
	if missing == "" {
		defer peer.kill()
		others = append(others, peer)
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return fmt.Errorf("create temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h, direct, durable, err := r.berthWays(ctx, server.Addr, filepath.Join(dir, "routing.yaml"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	bareOne, stop, err := bareWorkflow(ctx, r.Config, 1)
	if err != nil {
		return err
	}
	defer stop()

	ways := append([]*way{direct, durable}, others...)
	bare := &way{name: "bare workflow with one empty activity, start to result"}
	if err := r.firstChunks(ctx, ways, bare, bareOne); err != nil {
		return err
	}
	p.Store(&provider{tokens: r.times(openaiChunks), pause: openaiPause})
	if err := r.chunks(ctx, ways); err != nil {
		return err
	}
	for _, w := range []*way{direct, durable} {
		for _, o := range others {
			r.compare(w, o, w == direct && o == proxy)
		}
		if missing != "" {
			r.add(Figure{Name: w.name + ": " + firstChunk + ", p50; " + peerGateway, Unit: "ms", Value: milliseconds(w.first.at(0.5))}.
				without(peerGateway, missing))
		}
	}
	r.quantiles(durable.name+": "+firstChunk, durable.first, bare.name, bare.first, maxRatio(1.2))
	r.quantiles(durable.name+": "+firstChunkBusy, durable.busy, bare.name, bare.busy)
	return nil
}

// compare adds the figures of calls through berth beside those of another way.
func (r *Run) compare(measured, other *way, goals bool) {
	var first, late, chunk []goal
	if goals {
		first, late, chunk = []goal{maxMore(3)}, []goal{maximum(1)}, []goal{maxRatio(3)}
	}
	name := measured.name + ": "
	r.quantiles(name+firstChunk, measured.first, other.name, other.first, first...)
	r.quantiles(name+firstChunkBusy, measured.busy, other.name, other.busy)
	r.quantiles(fmt.Sprintf("%schunk from the provider to the client, %d streams", name, openaiStreams), measured.late, other.name, other.late, late...)
	f := Figure{Name: name + "processor time of a chunk", Unit: "us", Value: measured.perChunk()}.beside(other.name, other.perChunk())
	for _, g := range chunk {
		f = f.within(g)
	}
	r.add(f)
}

// firstChunks measures the time until the first chunk of an answer, and that of bare workflows. The provider responds without delay.
func (r *Run) firstChunks(ctx context.Context, ways []*way, bare *way, bareOne func(context.Context, int) error) error {
	n := r.times(openaiCalls)
	r.step("%d calls, one after another on each of %d ways", n, len(ways))
	for i := range n {
		for _, w := range ways {
			took, err := w.firstChunk(ctx)
			if err != nil {
				return err
			}
			w.first = append(w.first, took)
		}
		began := time.Now()
		if err := bareOne(ctx, i); err != nil {
			return err
		}
		bare.first = append(bare.first, time.Since(began))
	}
	r.step("%d calls, of which %d are concurrent", n, parallel)
	for range openaiRounds {
		calls := max(parallel, n/openaiRounds)
		for _, w := range ways {
			took := make(latencies, calls)
			_, err := concurrently(ctx, calls, parallel, func(ctx context.Context, i int) (err error) {
				took[i], err = w.firstChunk(ctx)
				return err
			})
			if err != nil {
				return err
			}
			w.busy = append(w.busy, took...)
		}
		got, err := concurrently(ctx, calls, parallel, bareOne)
		if err != nil {
			return err
		}
		bare.busy = append(bare.busy, got.took...)
	}
	return nil
}

// chunks measures streams with many chunks: how late each is, and the processor time of the process.
func (r *Run) chunks(ctx context.Context, ways []*way) error {
	r.step("no calls for %s", idleFor)
	var before []time.Duration
	for _, w := range ways {
		used, err := w.processorTime(ctx)
		if err != nil {
			return err
		}
		before = append(before, used)
	}
	if !pause.For(ctx, idleFor) {
		return context.Cause(ctx)
	}
	for i, w := range ways {
		used, err := w.processorTime(ctx)
		if err != nil {
			return err
		}
		w.idle = (used - before[i]) / (idleFor / time.Second)
	}
	for round := range openaiRounds {
		r.step("round %d of %d, %d streams of %d chunks on each way", round+1, openaiRounds, openaiStreams, r.times(openaiChunks))
		for _, w := range ways {
			if err := w.streams(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// streams reads some streams concurrently.
func (w *way) streams(ctx context.Context) error {
	late := make([]latencies, openaiStreams)
	before, err := w.processorTime(ctx)
	if err != nil {
		return err
	}
	done, err := concurrently(ctx, openaiStreams, openaiStreams, func(ctx context.Context, i int) error {
		return w.call(ctx, func(sent string) { late[i] = append(late[i], since(sent)) })
	})
	if err != nil {
		return err
	}
	after, err := w.processorTime(ctx)
	if err != nil {
		return err
	}
	w.used += max(0, after-before-time.Duration(done.wall.Seconds()*float64(w.idle)))
	for _, l := range late {
		w.late = append(w.late, l...)
	}
	return nil
}

// perChunk returns the processor time of a chunk in microseconds.
func (w *way) perChunk() float64 {
	return float64(w.used.Microseconds()) / float64(max(1, len(w.late)))
}

func (w *way) firstChunk(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	err = w.call(ctx, func(string) {
		if took == 0 {
			took = time.Since(began)
		}
	})
	if err == nil && took == 0 {
		err = fmt.Errorf("%s: an answer without a chunk", w.name)
	}
	return took, err
}

// call makes a streamed call, and passes the text of each chunk on.
func (w *way) call(ctx context.Context, on func(text string)) (err error) {
	body := `{"model":"` + w.model + `","stream":true,"messages":[{"role":"user","content":"Hello"}]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = w.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	res, err := w.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000)) // a part is enough
		return fmt.Errorf("%s responds %s: %s", w.name, res.Status, text)
	}
	ended := false
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), `"content":"`); ok && rest[0] != '"' {
			text, _, _ := strings.Cut(rest, `"`)
			on(text)
		}
		ended = ended || lines.Text() == "data: [DONE]"
	}
	if err := lines.Err(); err != nil || !ended {
		return fmt.Errorf("%s: the stream broke off: %w", w.name, err)
	}
	return nil
}

// processorTime returns the processor time that the processes have used so far.
func (w *way) processorTime(ctx context.Context) (sum time.Duration, err error) {
	for _, c := range w.processes {
		p, err := process.NewProcessWithContext(ctx, int32(c.cmd.Process.Pid)) //nolint:gosec // a process id
		if err != nil {
			return 0, fmt.Errorf("%s: %w", w.name, err)
		}
		t, err := p.TimesWithContext(ctx)
		if err != nil {
			return 0, fmt.Errorf("processor time of %s: %w", w.name, err)
		}
		sum += seconds(t.User + t.System)
	}
	return sum, nil
}

func (w *way) kill() {
	for _, c := range w.processes {
		c.kill()
	}
}

func newWay(name, url string, header http.Header, processes ...child) *way {
	return &way{
		name: name, url: url, model: openaiModel, header: header, processes: processes,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: parallel}},
	}
}

// listen serves a provider at a free address.
func listen(ctx context.Context, p http.Handler) (*http.Server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start provider: %w", err)
	}
	server := &http.Server{Addr: l.Addr().String(), Handler: p, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }() // returns when closed
	return server, nil
}

// berthWays starts an API and a worker whose only model is served by the provider. The key decides how the calls are made.
func (r *Run) berthWays(ctx context.Context, provider, routing string) (h *stack, direct, durable *way, err error) {
	err = os.WriteFile(routing, fmt.Appendf(nil, `providers: {bench: {baseURL: "http://%s/v1", keyOptional: true}}
models: {%s: {provider: bench, cap: %d, maxOutputTokens: 4096, credits: {input: 1, output: 1}}}
routes: {default: {paid: %[2]s, free: %[2]s}}
`, provider, openaiModel, 2*parallel), 0o600)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("write routing file: %w", err)
	}
	if h, err = r.start(ctx, http.NotFoundHandler(), "BERTH_ROUTING_FILE="+routing); err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop())
		}
	}()
	if h.worker, err = h.startWorker(ctx); err != nil {
		return nil, nil, nil, err
	}
	if direct, err = h.way(ctx, berth.DurabilityDirect, openaiModel, h.api); err != nil {
		return nil, nil, nil, err
	}
	durable, err = h.way(ctx, berth.DurabilityDurable, openaiModel, h.api, h.worker)
	return h, direct, durable, err
}

// way returns the way through a stack of calls of a model with a new key.
func (h *stack) way(ctx context.Context, d berth.Durability, model string, processes ...child) (*way, error) {
	if _, err := h.client.PutTeam(ctx, client.Team{TeamID: "bench"}); err != nil {
		return nil, err
	}
	key, err := h.client.CreateKey(ctx, client.Key{TeamID: "bench", KeySpec: client.KeySpec{Durability: string(d)}})
	if err != nil {
		return nil, err
	}
	w := newWay(string(d)+" call", h.url+"/openai/v1", http.Header{"Authorization": {"Bearer " + key.Secret}}, processes...)
	w.model = model
	return w, nil
}

// proxyWay starts a process with a reverse proxy.
func proxyWay(ctx context.Context, provider string) (*way, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the path of this program: %w", err)
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	c, err := startChild(ctx, self, nil, "--proxy", addr+"="+provider)
	if err != nil {
		return nil, err
	}
	if err := listens(ctx, addr); err != nil {
		c.kill()
		return nil, err
	}
	return newWay(bareProxy, "http://"+addr+"/v1", http.Header{}, c), nil
}

// ServeProxy serves a reverse proxy at an address until ctx ends.
func ServeProxy(ctx context.Context, addr, target string) error {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	transport.MaxIdleConnsPerHost = 2 * parallel
	to := &url.URL{Scheme: "http", Host: target}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1, Transport: transport,
	}
	server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The first write of a response closes the body of its request, for whose end the transport may still look: then it breaks off the answer.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 supports it
		proxy.ServeHTTP(w, r)
	})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends ListenAndServe
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// peerWay starts the other gateway. missing is why it cannot be.
func (r *Run) peerWay(ctx context.Context, provider string) (w *way, missing string, err error) {
	program := filepath.Join(r.Peer, "node_modules", peerGateway, "build", "start-server.js")
	if _, err := os.Stat(program); err != nil {
		return nil, "not installed in the directory of --peer", nil //nolint:nilerr // a reason, not a fault
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, "Node is not installed", nil //nolint:nilerr // a reason, not a fault
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", err
	}
	c, err := startChild(ctx, node, []string{"NODE_ENV=production"}, program, "--port="+port, "--headless")
	if err != nil {
		return nil, "", err
	}
	if err := listens(ctx, addr); err != nil {
		c.kill()
		return nil, "", err
	}
	return newWay(peerGateway, "http://"+addr+"/v1", http.Header{
		"X-Portkey-Provider": {"openai"}, "X-Portkey-Custom-Host": {"http://" + provider + "/v1"}, "Authorization": {"Bearer bench"},
	}, c), "", nil
}

// listens returns when a process listens at an address.
func listens(ctx context.Context, addr string) error {
	return pause.Until(ctx, opened, 50*time.Millisecond, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
