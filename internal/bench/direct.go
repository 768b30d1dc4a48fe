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
	// directCalls is how many calls are made one after another, and then as many of which some are concurrent.
	directCalls = 500
	// directStreams are read concurrently: each has directChunks chunks, one every directPause.
	directStreams, directChunks, directPause = parallel, 500, 10 * time.Millisecond
	// directRounds is how often the ways alternate where calls are concurrent.
	directRounds = 3

	directModel = "bench"
	bareProxy   = "bare Go reverse proxy"
	peerGateway = "@portkey-ai/gateway"
)

// way is a process between the same clients and the same provider, with what was measured of it.
type way struct {
	child

	name   string
	url    string // of the protocol
	header http.Header
	http   *http.Client

	// first are the times until the first chunk, of calls one after another, and busy those of concurrent ones. late are the times from when the
	// provider sent a chunk until the client had it.
	first, busy, late latencies
	// idle is the processor time of a second without calls, and used that of streams beyond it.
	idle, used time.Duration
}

// directProvider is the provider of all ways. Its answers are changed while they run.
type directProvider struct{ atomic.Pointer[provider] }

func (p *directProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.Load().ServeHTTP(w, r) }

// direct compares calls of OpenAI's protocol with those through a proxy that does nothing else, and through another gateway.
func direct(ctx context.Context, r *Run) (err error) {
	p := &directProvider{}
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
	h, measured, err := r.directWay(ctx, server.Addr, filepath.Join(dir, "routing.yaml"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()

	ways := append([]*way{measured}, others...)
	if err := r.firstChunks(ctx, ways); err != nil {
		return err
	}
	p.Store(&provider{tokens: r.times(directChunks), pause: directPause})
	if err := r.chunks(ctx, ways); err != nil {
		return err
	}
	for _, o := range others {
		r.compare(measured, o)
	}
	if missing != "" {
		r.add(Figure{Name: "direct call: first chunk, one call after another, p50; " + peerGateway, Unit: "ms", Value: milliseconds(measured.first.at(0.5))}.
			without(peerGateway, missing))
	}
	return nil
}

// compare adds the figures of calls through berth beside those of another way.
func (r *Run) compare(measured, other *way) {
	var first, late, chunk []goal
	if other.name == bareProxy {
		first, late, chunk = []goal{maxMore(3)}, []goal{maximum(1)}, []goal{maxRatio(3)}
	}
	r.quantiles("direct call: first chunk, one call after another", measured.first, other.name, other.first, first...)
	r.quantiles(fmt.Sprintf("direct call: first chunk, %d concurrent calls", parallel), measured.busy, other.name, other.busy)
	r.quantiles(fmt.Sprintf("direct call: chunk from the provider to the client, %d streams", directStreams), measured.late, other.name, other.late, late...)
	f := Figure{Name: "direct call: processor time of a chunk", Unit: "us", Value: measured.perChunk()}.beside(other.name, other.perChunk())
	for _, g := range chunk {
		f = f.within(g)
	}
	r.add(f)
}

// firstChunks measures the time until the first chunk of an answer. The provider responds without delay.
func (r *Run) firstChunks(ctx context.Context, ways []*way) error {
	n := r.times(directCalls)
	r.step("%d calls, one after another on each of %d ways", n, len(ways))
	for range n {
		for _, w := range ways {
			took, err := w.firstChunk(ctx)
			if err != nil {
				return err
			}
			w.first = append(w.first, took)
		}
	}
	r.step("%d calls, of which %d are concurrent", n, parallel)
	for range directRounds {
		for _, w := range ways {
			took := make(latencies, max(parallel, n/directRounds))
			_, err := concurrently(ctx, len(took), parallel, func(ctx context.Context, i int) (err error) {
				took[i], err = w.firstChunk(ctx)
				return err
			})
			if err != nil {
				return err
			}
			w.busy = append(w.busy, took...)
		}
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
	for round := range directRounds {
		r.step("round %d of %d, %d streams of %d chunks on each way", round+1, directRounds, directStreams, r.times(directChunks))
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
	late := make([]latencies, directStreams)
	before, err := w.processorTime(ctx)
	if err != nil {
		return err
	}
	done, err := concurrently(ctx, directStreams, directStreams, func(ctx context.Context, i int) error {
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
	body := `{"model":"` + directModel + `","stream":true,"messages":[{"role":"user","content":"Hello"}]}`
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

// processorTime returns the processor time that the process has used so far.
func (w *way) processorTime(ctx context.Context) (time.Duration, error) {
	p, err := process.NewProcessWithContext(ctx, int32(w.cmd.Process.Pid)) //nolint:gosec // a process id
	if err != nil {
		return 0, fmt.Errorf("%s: %w", w.name, err)
	}
	t, err := p.TimesWithContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", w.name, err)
	}
	return seconds(t.User + t.System), nil
}

func newWay(name, url string, c child, header http.Header) *way {
	return &way{child: c, name: name, url: url, header: header, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: parallel}}}
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

// directWay starts an API whose only model is served by the provider. The key decides how the calls are made.
func (r *Run) directWay(ctx context.Context, provider, routing string) (h *stack, w *way, err error) {
	err = os.WriteFile(routing, fmt.Appendf(nil, `providers: {bench: {baseURL: "http://%s/v1", keyOptional: true}}
models: {%s: {provider: bench, cap: %d, maxOutputTokens: 4096, credits: {input: 1, output: 1}}}
routes: {default: {paid: %[2]s, free: %[2]s}}
`, provider, directModel, 2*parallel), 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("write routing file: %w", err)
	}
	if h, err = r.start(ctx, http.NotFoundHandler(), "BERTH_ROUTING_FILE="+routing); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop())
		}
	}()
	if _, err = h.client.PutTeam(ctx, client.Team{TeamID: "bench"}); err != nil {
		return nil, nil, err
	}
	key, err := h.client.CreateKey(ctx, client.Key{TeamID: "bench", KeySpec: client.KeySpec{Durability: string(berth.DurabilityDirect)}})
	if err != nil {
		return nil, nil, err
	}
	return h, newWay("berth", h.url+"/openai/v1", h.api, http.Header{"Authorization": {"Bearer " + key.Secret}}), nil
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
	return newWay(bareProxy, "http://"+addr+"/v1", c, http.Header{}), nil
}

// ServeProxy serves a reverse proxy at an address until ctx ends.
func ServeProxy(ctx context.Context, addr, target string) error {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	transport.MaxIdleConnsPerHost = 2 * parallel
	to := &url.URL{Scheme: "http", Host: target}
	server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Second, Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1, Transport: transport,
	}}
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
	return newWay(peerGateway, "http://"+addr+"/v1", c, http.Header{
		"X-Portkey-Provider": {"openai"}, "X-Portkey-Custom-Host": {"http://" + provider + "/v1"}, "Authorization": {"Bearer bench"},
	}), "", nil
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
