package api_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/testprovider"
)

// idleProxy forwards connections to an address, and cuts those on which the server has sent nothing for some time, as proxies and load balancers do.
// It returns its address.
func idleProxy(t *testing.T, to string, idle time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			running.Go(func() {
				defer func() { _ = client.Close() }()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer func() { _ = server.Close() }()
				running.Go(func() {
					_, _ = io.Copy(server, client) // until either has left
					_ = server.Close()
				})
				for buf := make([]byte, 4096); ; {
					_ = server.SetReadDeadline(time.Now().Add(idle))
					n, err := server.Read(buf)
					if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// complaint 6: a proxy that cuts connections without traffic cuts no streamed call, neither one that waits nor one whose provider is silent.
func TestOpenAI_ProxyCutsIdleConnections_StreamsStayOpen(t *testing.T) { // O2
	t.Parallel()
	const idle = 1500 * time.Millisecond
	m := newModels(t, []int{1})
	let := hold(m.providers[0])
	defer let()
	m.base = "http://" + idleProxy(t, strings.TrimPrefix(m.base, "http://"), idle)
	m.http.CloseIdleConnections()
	silent, _ := m.open(t.Context(), m.secret)
	require.Contains(t, <-silent, ": the model is called")
	waiting, _ := m.open(t.Context(), m.secret)
	require.Regexp(t, `^: waiting, 0 ahead`, <-waiting)
	for range 3 { // as the proxy cuts each of these, the streams have been open for longer than it allows silence
		began := time.Now()
		res, err := m.http.Do(m.request(http.MethodPost, "/openai/v1/chat/completions", m.secret, strings.NewReader(hello)))
		if err == nil {
			_ = res.Body.Close()
		}
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "a call that is not streamed is cut: %v", err)
		require.GreaterOrEqual(t, time.Since(began), idle)
	}
	let()
	for name, lines := range map[string]<-chan string{"silent": silent, "waiting": waiting} {
		text := ""
		for line := range lines {
			text += line + "\n"
		}
		require.Contains(t, text, testprovider.Text, name)
		require.Contains(t, text, "data: [DONE]", name)
	}
}
