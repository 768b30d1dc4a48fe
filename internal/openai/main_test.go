package openai

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/llm"
)

// provider is a server that keeps the last request, and a client of it.
type provider struct {
	client *llm.Client
	ctx    context.Context
	last   atomic.Pointer[string]
}

func newProvider(t *testing.T, answer string) *provider {
	t.Helper()
	p := &provider{ctx: t.Context()}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body := string(b)
		p.last.Store(&body)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(srv.Close)
	p.client = clientOf(t, srv.URL)
	return p
}

func (p *provider) body() string { return *p.last.Load() }

// clientOf returns a client of a server, which serves the model large.
func clientOf(t testing.TB, url string) *llm.Client {
	t.Helper()
	content, err := llm.ParseContent("test", `
providers:
  acme: {baseURL: "`+url+`"}
models:
  large: {id: large-1, provider: acme, extra: [top_k, min_p], maxOutputTokens: 1000}
`)
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{})
	require.NoError(t, err)
	hc := llm.NewHTTPClient()
	t.Cleanup(hc.CloseIdleConnections)
	return llm.NewClient(llm.Fixed(catalog), hc, slog.New(slog.DiscardHandler))
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
