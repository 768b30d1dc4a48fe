package llm

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkForward_Chunk measures the processor time of this process for each chunk of paced streams, with the provider and the clients: without
// anything between them, through a reverse proxy, and through a handler that forwards. What the latter two cost is the difference to the first.
//
// go test ./internal/llm -run x -bench Forward_Chunk -benchtime 1x
func BenchmarkForward_Chunk(b *testing.B) {
	const streams, chunks, pace = 50, 200, 5 * time.Millisecond
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		next := time.NewTicker(pace)
		defer next.Stop()
		for range chunks {
			send(w, `{"id":"chatcmpl-CgVxv1","object":"chat.completion.chunk","created":1764230000,"model":"gpt-5.2-2025-12-11","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"Zb7xPq"}`)
			<-next.C
		}
		send(w, stopChunk, usageChunk, doneLine)
	}))
	defer provider.Close()
	target, err := url.Parse(provider.URL)
	require.NoError(b, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = NewHTTPClient().Transport
	client := NewClient(Fixed(benchCatalog(b, provider.URL)), nil, slog.New(slog.DiscardHandler))
	forward := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flusher := w.(http.Flusher)
		var event []byte
		_, err := client.Forward(r.Context(), Call{Model: "large", Raw: rawOf(usageBody)}, func(object []byte) error {
			event = append(append(append(event[:0], "data: "...), object...), "\n\n"...)
			_, err := w.Write(event)
			flusher.Flush()
			return err
		})
		if err == nil {
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		}
	})
	for _, way := range []struct {
		name    string
		handler http.Handler
	}{{"direct", nil}, {"proxy", proxy}, {"forward", forward}} {
		b.Run(way.name, func(b *testing.B) {
			at := provider.URL
			if way.handler != nil {
				srv := httptest.NewServer(way.handler)
				defer srv.Close()
				at = srv.URL
			}
			b.ReportAllocs()
			for b.Loop() {
				begun := processorTime(b)
				var all sync.WaitGroup
				for range streams {
					all.Go(func() {
						resp, err := http.Post(at+"/chat/completions", "application/json", bytes.NewReader([]byte(usageBody)))
						if err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64((processorTime(b)-begun).Microseconds())/(streams*chunks), "processor-µs/chunk")
			}
		})
	}
}

// BenchmarkForward_Parse measures only what is done with a chunk.
func BenchmarkForward_Parse(b *testing.B) {
	var stream bytes.Buffer
	const chunks = 1000
	for range chunks {
		fmt.Fprintf(&stream, "data: %s\n\n", `{"id":"chatcmpl-CgVxv1","object":"chat.completion.chunk","created":1764230000,"model":"gpt-5.2-2025-12-11","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"Zb7xPq"}`)
	}
	s := &session{limits: DefaultLimits()}
	b.ReportAllocs()
	for b.Loop() {
		s.raw = &rawAnswer{req: rawOf(streamBody), on: func([]byte) error { return nil }}
		s.received = 0
		require.NoError(b, s.readStream(bytes.NewReader(stream.Bytes())))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/chunks, "ns/chunk")
}

func benchCatalog(b *testing.B, url string) *Catalog {
	b.Helper()
	content, err := ParseContent("bench", "providers:\n  acme: {baseURL: \""+url+"\"}\nmodels:\n  large: {provider: acme}\n")
	require.NoError(b, err)
	c, err := NewCatalog(content.Config, Settings{})
	require.NoError(b, err)
	return c
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
