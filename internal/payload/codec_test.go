package payload_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"berth/internal/payload"
)

const secretText = "the applicant's résumé"

func plainPayload(t *testing.T) *commonpb.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(secretText)
	require.NoError(t, err)
	return p
}

func encode(t *testing.T, c converter.PayloadCodec, p *commonpb.Payload) *commonpb.Payload {
	t.Helper()
	out, err := c.Encode([]*commonpb.Payload{p})
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
}

func decode(c converter.PayloadCodec, p *commonpb.Payload) (*commonpb.Payload, error) {
	out, err := c.Decode([]*commonpb.Payload{p})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// of returns a codec for the payloads of one workflow.
func of(c payload.Codec, workflow string) converter.PayloadCodec {
	return c.WithSerializationContext(converter.WorkflowSerializationContext{Namespace: "default", WorkflowID: workflow})
}

func TestCodec_AnyPayload_IsRestored(t *testing.T) { // B7
	t.Parallel()
	codec := payload.NewCodec(keys(t, "a:"+key("a")))
	rapid.Check(t, func(t *rapid.T) {
		p := &commonpb.Payload{Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"), Metadata: map[string][]byte{}}
		for name, value := range rapid.MapOf(rapid.StringMatching(`[a-z-]{1,12}`), rapid.SliceOf(rapid.Byte())).Draw(t, "metadata") {
			p.Metadata[name] = value
		}
		before := proto.Clone(p)
		sealed, err := codec.Encode([]*commonpb.Payload{p})
		require.NoError(t, err)
		require.True(t, proto.Equal(before, p), "the argument is not changed")
		restored, err := codec.Decode(sealed)
		require.NoError(t, err)
		require.True(t, proto.Equal(p, restored[0]))
	})
}

func TestCodec_Encoded_IsUnreadableAndDifferentEachTime(t *testing.T) {
	t.Parallel()
	codec, p := payload.NewCodec(keys(t, "a:"+key("a"))), plainPayload(t)
	first, second := encode(t, codec, p), encode(t, codec, p)
	for _, sealed := range []*commonpb.Payload{first, second} {
		b, err := proto.Marshal(sealed)
		require.NoError(t, err)
		require.NotContains(t, string(b), "applicant")
		require.NotContains(t, string(b), "json/plain")
	}
	require.False(t, bytes.Contains(second.GetData(), first.GetData()[28:]))
}

func TestCodec_PlainPayload_IsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	p := plainPayload(t)
	for _, list := range []string{"", "a:" + key("a"), "none,a:" + key("a")} {
		got, err := decode(payload.NewCodec(keys(t, list)), p)
		require.NoError(t, err)
		require.True(t, proto.Equal(p, got))
	}
	require.True(t, proto.Equal(p, encode(t, payload.NewCodec(keys(t, "none,a:"+key("a"))), p)), "none encrypts nothing")
}

func TestCodec_KeysRotated_OldPayloadsStayReadable(t *testing.T) { // B7
	t.Parallel()
	p := plainPayload(t)
	before, after := payload.NewCodec(keys(t, "a:"+key("a"))), payload.NewCodec(keys(t, "b:"+key("b")+",a:"+key("a")))
	old, fresh := encode(t, before, p), encode(t, after, p)
	for _, sealed := range []*commonpb.Payload{old, fresh} {
		got, err := decode(after, sealed)
		require.NoError(t, err)
		require.True(t, proto.Equal(p, got))
	}
	_, err := decode(before, fresh)
	require.ErrorContains(t, err, `payload is encrypted with key "b", which BERTH_PAYLOAD_KEYS does not contain`)
	got, err := decode(payload.NewCodec(keys(t, "none,a:"+key("a"))), old)
	require.NoError(t, err)
	require.True(t, proto.Equal(p, got))
}

func TestCodec_OtherWorkflow_IsRejected(t *testing.T) {
	t.Parallel()
	codec, p := payload.NewCodec(keys(t, "a:"+key("a"))), plainPayload(t)
	sealed := encode(t, of(codec, "task:alice"), p)
	for _, c := range []converter.PayloadCodec{of(codec, "task:alice"), codec} {
		got, err := decode(c, sealed)
		require.NoError(t, err)
		require.True(t, proto.Equal(p, got))
	}
	_, err := decode(of(codec, "task:bob"), sealed)
	require.ErrorContains(t, err, `payload belongs to workflow "task:alice", not to "task:bob"`)

	activity := codec.WithSerializationContext(converter.ActivitySerializationContext{WorkflowID: "task:alice", ActivityType: "RunStep"})
	_, err = decode(activity, sealed)
	require.NoError(t, err)
	_, err = decode(of(codec, "task:bob"), encode(t, activity, p))
	require.ErrorContains(t, err, "payload belongs to workflow")
	got, err := decode(of(codec, "task:bob"), encode(t, codec, p))
	require.NoError(t, err, "a payload of no workflow")
	require.True(t, proto.Equal(p, got))
}

func TestCodec_ChangedPayload_IsRejected(t *testing.T) {
	t.Parallel()
	codec := payload.NewCodec(keys(t, "a:"+key("a")+",b:"+key("b")))
	sealed := encode(t, of(codec, "task:alice"), plainPayload(t))
	for name, change := range map[string]func(*commonpb.Payload){
		"salt":           func(p *commonpb.Payload) { p.Data[0] ^= 1 },
		"nonce":          func(p *commonpb.Payload) { p.Data[16] ^= 1 },
		"text":           func(p *commonpb.Payload) { p.Data[30] ^= 1 },
		"tag":            func(p *commonpb.Payload) { p.Data[len(p.Data)-1] ^= 1 },
		"shortened":      func(p *commonpb.Payload) { p.Data = p.Data[:len(p.Data)-1] },
		"another key id": func(p *commonpb.Payload) { p.Metadata["encryption-key-id"] = []byte("b") },
		"workflow":       func(p *commonpb.Payload) { p.Metadata["encryption-workflow-id"] = []byte("task:bob") },
		"no workflow":    func(p *commonpb.Payload) { delete(p.Metadata, "encryption-workflow-id") },
	} {
		p, ok := proto.Clone(sealed).(*commonpb.Payload)
		require.True(t, ok)
		change(p)
		_, err := decode(codec, p)
		require.ErrorContains(t, err, "payload cannot be decrypted with key", name)
	}
	for _, length := range []int{0, 1, 27} {
		p, ok := proto.Clone(sealed).(*commonpb.Payload)
		require.True(t, ok)
		p.Data = p.Data[:length]
		_, err := decode(codec, p)
		require.ErrorContains(t, err, "encrypted payload is incomplete")
	}
}

func TestCodec_KeyMissingOrDifferent_ErrorStatesKeyID(t *testing.T) { // B7
	t.Parallel()
	sealed := encode(t, payload.NewCodec(keys(t, "a:"+key("a"))), plainPayload(t))
	_, err := decode(payload.NewCodec(payload.Keys{}), sealed)
	require.ErrorContains(t, err, `payload is encrypted with key "a", but BERTH_PAYLOAD_KEYS is not set`)
	_, err = decode(payload.NewCodec(keys(t, "a:"+key("x"))), sealed)
	require.ErrorContains(t, err, `payload cannot be decrypted with key "a"`)
	require.NotContains(t, err.Error(), key("x"))
}
