package webhook

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// former and current are of this test only; the example of the specification uses current.
const (
	current = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	former  = "whsec_YmVydGggdGVzdHMgdXNlIHRoaXMgb25l"
)

func sender(t *testing.T, o Options) *Sender {
	t.Helper()
	s, err := New(o)
	require.NoError(t, err)
	return s
}

// The event has the three headers of Standard Webhooks; receivers with either secret accept it, and no changed one.
func TestSend_Event_SignedForEachSecret(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	var body atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body.Store(b)
		got <- r.Header
	}))
	defer server.Close()
	s := sender(t, Options{URL: server.URL, Secrets: []string{current, former}, AllowPrivate: true})
	status, err := s.Send(t.Context(), "record-c-1", []byte(`{"a":1}`))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	header := <-got
	require.Equal(t, "record-c-1", header.Get("webhook-id"))
	require.Equal(t, "application/json", header.Get("Content-Type"))
	require.Len(t, strings.Fields(header.Get("webhook-signature")), 2)
	for _, with := range []string{current, former} {
		receiver, err := standardwebhooks.NewWebhook(with)
		require.NoError(t, err)
		require.NoError(t, receiver.Verify(body.Load().([]byte), header))
		require.Error(t, receiver.Verify([]byte(`{"a":2}`), header))
		changed := header.Clone()
		changed.Set("webhook-id", "record-c-2")
		require.Error(t, receiver.Verify(body.Load().([]byte), changed))
	}
}

// The example of the specification: the signature does not depend on the library that makes it.
func TestSign_ExampleOfTheSpecification_SameSignature(t *testing.T) {
	t.Parallel()
	s := sender(t, Options{URL: "https://host.test", Secrets: []string{current}})
	signers, err := s.signer.signers()
	require.NoError(t, err)
	got, err := signers[0].Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
}

// Redirects are not followed, errors have neither the URL nor the response, and a server may set the time of the next attempt.
func TestSend_ServerRefuses_ErrorWithoutItsContent(t *testing.T) {
	t.Parallel()
	var status, followed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			followed.Add(1)
		}
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", "120")
		http.Error(w, "a text of the server", int(status.Load()))
	}))
	defer server.Close()
	s := sender(t, Options{URL: server.URL + "/private-path", Secrets: []string{current}, AllowPrivate: true})
	for _, code := range []int64{302, 307, 308, 400, 401, 404, 410, 429, 500, 503} {
		status.Store(code)
		got, err := s.Send(t.Context(), "id", []byte("{}"))
		var failed *Error
		require.ErrorAs(t, err, &failed)
		require.EqualValues(t, code, got)
		require.EqualValues(t, code, failed.Status)
		require.Equal(t, 2*time.Minute, failed.RetryAfter)
		require.Equal(t, code == http.StatusGone, failed.Permanent())
		require.NotContains(t, err.Error(), "private-path")
		require.NotContains(t, err.Error(), "a text")
	}
	require.Zero(t, followed.Load())
	server.Close()
	_, err := s.Send(t.Context(), "id", []byte("{}"))
	require.EqualError(t, err, "the server refused the connection")
}

// An error says why there was no response, so that users know where to look, and whether the event may have arrived.
func TestSend_NoResponse_ReasonSaid(t *testing.T) {
	t.Parallel()
	behaves := func(f func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				f(c)
				_ = c.Close()
			}
		}()
		return l.Addr().String()
	}
	read := func(c net.Conn) { _, _ = c.Read(make([]byte, 64<<10)) }
	closes := behaves(read)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(secure.Close)
	silent := make(chan struct{})
	hangs := behaves(func(c net.Conn) { read(c); <-silent })
	t.Cleanup(func() { close(silent) })
	for at, want := range map[string]string{
		"http://" + closes:                     "the server closed the connection without a response",
		"http://" + behaves(func(net.Conn) {}): "the server closed the connection without a response",
		"https://" + behaves(func(c net.Conn) { read(c); _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }): "the server does not speak TLS",
		"http://" + behaves(func(c net.Conn) { read(c); _, _ = io.WriteString(c, "220 mail.test ESMTP\r\n") }):           "the server's response is not HTTP",
		secure.URL:            "the certificate of the server is not valid",
		"http://name.invalid": "the name of the server was not found",
		"http://" + hangs:     "the server did not respond in time",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		status, err := sender(t, Options{URL: at, Secrets: []string{current}, AllowPrivate: true}).Send(ctx, "id", []byte("{}"))
		cancel()
		require.EqualError(t, err, want, "%s: %v", at, errors.Unwrap(err))
		require.Zero(t, status)
	}
}

// A server at an address that is not public receives nothing, also where a name leads to it.
func TestSend_PrivateAddress_Refused(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	defer server.Close()
	_, err := New(Options{URL: server.URL, Secrets: []string{current}})
	require.EqualError(t, err, "invalid URL: the server's address 127.0.0.1 is not public")
	named := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	_, err = sender(t, Options{URL: named, Secrets: []string{current}}).Send(t.Context(), "id", []byte("{}"))
	require.ErrorContains(t, err, "is not public")
	require.Zero(t, received.Load())
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1": true, "127.0.0.1": false, "::1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false,
		"169.254.169.254": false, "fe80::1": false, "fc00::1": false, "100.64.0.1": false, "0.0.0.0": false, "::": false, "224.0.0.1": false,
		"::ffff:127.0.0.1": false, "::ffff:8.8.8.8": true, "64:ff9b::7f00:1": false, "255.255.255.255": false, "198.18.0.1": false,
	} {
		require.Equal(t, want, public(netip.MustParseAddr(address)), address)
	}
}

func TestOptions_Invalid_Refused(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{URL: "", Secrets: []string{current}},
		{URL: "ftp://host.test", Secrets: []string{current}},
		{URL: "http://host.test", Secrets: []string{current}},
		{URL: "https://user@host.test", Secrets: []string{current}},
		{URL: "https://host.test"},
		{URL: "https://host.test", Secrets: []string{"whsec_c2hvcnQ="}},
		{URL: "https://host.test", Secrets: []string{current, "not base64"}},
	} {
		err := o.Validate()
		require.Error(t, err, "%+v", o)
		require.NotContains(t, err.Error(), "c2hvcnQ")
	}
}

// A change of the file applies to the next event.
func TestSend_SecretsFileChanges_NextEventHasTheNewSignature(t *testing.T) { // FM6
	t.Parallel()
	got := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "secrets")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(former + "\n")
	s := sender(t, Options{URL: server.URL, SecretsFile: file, AllowPrivate: true})
	for text, with := range map[string][]string{former: {former}, former + "\r\n" + current + "\r\n": {former, current}, current + ", " + former: {current, former}} {
		write(text)
		_, err := s.Send(t.Context(), "id", []byte(`{}`))
		require.NoError(t, err)
		header := <-got
		require.Len(t, strings.Fields(header.Get("webhook-signature")), len(with))
		for _, one := range with {
			receiver, err := standardwebhooks.NewWebhook(one)
			require.NoError(t, err)
			require.NoError(t, receiver.Verify([]byte(`{}`), header))
		}
	}
	write("whsec_short")
	_, err := s.Send(t.Context(), "id", []byte(`{}`))
	require.ErrorContains(t, err, "BERTH_RECORD_SECRETS_FILE: invalid secret")
	_, err = New(Options{URL: server.URL, SecretsFile: file, Secrets: []string{current}, AllowPrivate: true})
	require.ErrorContains(t, err, "set one of BERTH_RECORD_SECRETS and BERTH_RECORD_SECRETS_FILE, not both")
}
