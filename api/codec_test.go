package api_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"berth"
	"berth/api"
	"berth/internal/payload"
)

// codecKeys returns the keys "a" and "b" with the first one in use.
func codecKeys(t *testing.T) payload.Keys {
	t.Helper()
	key := func(c string) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32))) }
	keys, err := payload.ParseKeys("a:" + key("a") + ",b:" + key("b"))
	require.NoError(t, err)
	return keys
}

// remote is the client of the codec protocol in Temporal's SDK, with a token.
func (h *harness) remote(token string) converter.PayloadCodec {
	return converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
		Endpoint: h.base + "/v1/codec", Client: *h.http,
		ModifyRequest: func(req *http.Request) error {
			req.Header.Set("Authorization", "Bearer "+token)
			return nil
		},
	})
}

func TestDecodePayloads_OperatorToken_ReturnsPlainPayloads(t *testing.T) { // B7
	t.Parallel()
	keys := codecKeys(t)
	h := newHarness(t, func(d *api.Deps) { d.Config.PayloadKeys = keys })
	plain, err := converter.GetDefaultDataConverter().ToPayloads("résumé", map[string]int{"score": 7})
	require.NoError(t, err)
	of := payload.NewCodec(keys).WithSerializationContext(converter.WorkflowSerializationContext{WorkflowID: "task:t1"})
	sealed, err := of.Encode(plain.GetPayloads())
	require.NoError(t, err)
	sealed = append(sealed, plain.GetPayloads()[0]) // not encrypted
	got, err := h.remote(h.token("op", "operator")).Decode(sealed)
	require.NoError(t, err)
	require.Len(t, got, 3)
	for i, want := range append(plain.GetPayloads(), plain.GetPayloads()[0]) {
		require.True(t, proto.Equal(want, got[i]), i)
	}
}

func TestDecodePayloads_OtherCallers_AreRejected(t *testing.T) { // B7
	t.Parallel()
	keys := codecKeys(t)
	h := newHarness(t, func(d *api.Deps) { d.Config.PayloadKeys = keys })
	sealed, err := payload.NewCodec(keys).Encode([]*commonpb.Payload{{Data: []byte("x")}})
	require.NoError(t, err)
	for _, scope := range []string{"user", "node"} {
		_, err = h.remote(h.token("alice", scope)).Decode(sealed)
		require.ErrorContains(t, err, "Forbidden", scope)
	}
	_, err = h.remote("nonsense").Decode(sealed)
	require.ErrorContains(t, err, "Unauthorized")
	_, err = h.remote(h.token("op", "operator")).Encode(sealed)
	require.ErrorContains(t, err, "Not Found", "only berth's processes encrypt")
}

func TestDecodePayloads_InvalidInput_IsRejected(t *testing.T) {
	t.Parallel()
	h := newHarness(t) // without keys
	operator := h.token("op", "operator")
	for _, body := range []string{"", "[]", `{"payloads": 1}`, `{"payloads":[{"data":"%"}]}`} {
		a := h.do(h.request(http.MethodPost, "/v1/codec/decode", operator, strings.NewReader(body), "Content-Type", "application/json"))
		require.Equal(t, http.StatusBadRequest, a.status, body)
		require.Equal(t, berth.CodeInvalid, a.problem.Code)
	}
	sealed, err := payload.NewCodec(codecKeys(t)).Encode([]*commonpb.Payload{{Data: []byte("x")}})
	require.NoError(t, err)
	_, err = h.remote(operator).Decode(sealed)
	require.ErrorContains(t, err, "BERTH_PAYLOAD_KEYS is not set")
}

// The requests are those of the Temporal UI's page.
func TestDecodePayloads_PageOfTheTemporalUI_MayCall(t *testing.T) { // B7
	t.Parallel()
	h := newHarness(t) // the UI is at http://ui.test:8233
	const path = "/v1/codec/decode?preserveStorageRefs=true"
	preflight := func(origin string) answer {
		return h.do(h.request(http.MethodOptions, path, "", nil, "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,content-type,x-namespace"))
	}
	a := preflight("http://ui.test:8233")
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, "http://ui.test:8233", a.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, a.header.Get("Access-Control-Allow-Headers"), "authorization")
	require.Equal(t, "POST", a.header.Get("Access-Control-Allow-Methods"))

	call := func(token, origin string) answer {
		return h.do(h.request(http.MethodPost, path, token, strings.NewReader(`{"payloads":[]}`),
			"Content-Type", "application/json", "X-Namespace", "default", "Origin", origin))
	}
	a = call(h.token("op", "operator"), "http://ui.test:8233")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "http://ui.test:8233", a.header.Get("Access-Control-Allow-Origin"))
	a = call(h.token("alice"), "http://ui.test:8233")
	require.Equal(t, http.StatusForbidden, a.status)
	require.NotEmpty(t, a.header.Get("Access-Control-Allow-Origin"), "so that the page can show the error")

	require.NotEqual(t, http.StatusNoContent, preflight("http://evil.test").status)
	for _, a := range []answer{
		preflight("http://evil.test"), call(h.token("op", "operator"), "http://evil.test"),
		h.do(h.request(http.MethodGet, "/v1/me", h.token("alice"), nil, "Origin", "http://ui.test:8233")),
	} {
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
	}
}
