package bench

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A chunk that passes through the proxy has the time at which the provider sent it, and a call that breaks off is an error.
func TestOpenAI_CallThroughProxy_EachChunkHasItsTime(t *testing.T) { // O11
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var p openaiProvider
	p.Store(&provider{tokens: 5})
	server, err := listen(ctx, &p)
	require.NoError(t, err)
	addr, err := freeAddr()
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { require.NoError(t, ServeProxy(ctx, addr, server.Addr)) })
	defer func() {
		stop()
		serving.Wait()
		require.NoError(t, server.Close())
	}()
	require.NoError(t, listens(ctx, addr))
	w := newWay(bareProxy, "http://"+addr+"/v1", http.Header{})
	defer w.http.CloseIdleConnections()
	chunks := 0
	require.NoError(t, w.call(ctx, func(sent string) {
		chunks++
		require.Positive(t, since(sent))
		require.Less(t, since(sent), time.Minute)
	}))
	require.Equal(t, 5, chunks)
	first, err := w.firstChunk(ctx)
	require.NoError(t, err)
	require.Positive(t, first)
	require.NoError(t, server.Close())
	require.Error(t, w.call(ctx, func(string) {}))
}
