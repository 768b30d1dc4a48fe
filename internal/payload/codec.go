package payload

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

// The metadata of an encrypted payload. A payload with another encoding is plain text.
const (
	encoding      = "binary/encrypted"
	keyField      = "encryption-key-id"
	workflowField = "encryption-workflow-id"
)

const (
	saltBytes  = 16
	nonceBytes = 12
	// keyInfo separates the keys of payloads from others that may be derived from the same secret.
	keyInfo = "berth payload"
)

// Codec encrypts and decrypts payloads. Plain payloads are decoded unchanged, so that histories recorded without keys
// remain readable.
//
// The data of an encrypted payload is salt (16 bytes), nonce (12) and the AES-256-GCM ciphertext of the serialized original,
// with its tag. AES-GCM with random nonces must not encrypt more than 2^32 messages under one key (NIST SP 800-38D, section
// 8.3), which a busy installation reaches within weeks. Therefore each payload has its own key, derived from the configured
// one and the salt by HKDF-SHA256 (RFC 5869). Encoding, key id and workflow id are authenticated as associated data: a
// payload cannot be moved to another workflow.
type Codec struct {
	keys     Keys
	workflow string // that payloads belong to; empty: not known
}

// NewCodec returns a codec that does not know which workflow its payloads belong to. It encrypts them for any workflow, and
// decrypts those of every workflow.
func NewCodec(keys Keys) Codec { return Codec{keys: keys} }

// WithSerializationContext returns a codec for the payloads of one workflow.
func (c Codec) WithSerializationContext(sc converter.SerializationContext) converter.PayloadCodec {
	return c.of(sc)
}

func (c Codec) of(sc converter.SerializationContext) Codec {
	switch sc := sc.(type) {
	case converter.WorkflowSerializationContext:
		c.workflow = sc.WorkflowID
	case converter.ActivitySerializationContext:
		c.workflow = sc.WorkflowID
	}
	return c
}

// Encode returns the payloads encrypted, or unchanged without a key.
func (c Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return each(payloads, c.encrypt)
}

// Decode returns the payloads decrypted. Plain payloads are returned unchanged.
func (c Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return each(payloads, c.decrypt)
}

func each(payloads []*commonpb.Payload, f func(*commonpb.Payload) (*commonpb.Payload, error)) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		var err error
		if out[i], err = f(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c Codec) encrypt(p *commonpb.Payload) (*commonpb.Payload, error) {
	if !c.keys.Encrypt() {
		return p, nil
	}
	text, err := proto.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("serialize payload: %w", err)
	}
	id := c.keys.current
	data := make([]byte, saltBytes+nonceBytes, saltBytes+nonceBytes+len(text)+16)
	_, _ = rand.Read(data) // never fails
	sealer, err := aead(c.keys.byID[id], data[:saltBytes])
	if err != nil {
		return nil, err
	}
	metadata := map[string][]byte{converter.MetadataEncoding: []byte(encoding), keyField: []byte(id)}
	if c.workflow != "" {
		metadata[workflowField] = []byte(c.workflow)
	}
	return &commonpb.Payload{
		Metadata: metadata, Data: sealer.Seal(data, data[saltBytes:], text, associated(id, c.workflow)),
	}, nil
}

func (c Codec) decrypt(p *commonpb.Payload) (*commonpb.Payload, error) {
	if string(p.GetMetadata()[converter.MetadataEncoding]) != encoding {
		return p, nil
	}
	id, workflow := string(p.GetMetadata()[keyField]), string(p.GetMetadata()[workflowField])
	key := c.keys.byID[id]
	switch {
	case len(c.keys.byID) == 0:
		return nil, fmt.Errorf("payload is encrypted with key %q, but BERTH_PAYLOAD_KEYS is not set", id)
	case key == nil:
		return nil, fmt.Errorf("payload is encrypted with key %q, which BERTH_PAYLOAD_KEYS does not contain", id)
	case workflow != "" && c.workflow != "" && workflow != c.workflow:
		return nil, fmt.Errorf("payload belongs to workflow %q, not to %q", workflow, c.workflow)
	}
	data := p.GetData()
	if len(data) < saltBytes+nonceBytes {
		return nil, fmt.Errorf("encrypted payload is incomplete: %d bytes", len(data))
	}
	opener, err := aead(key, data[:saltBytes])
	if err != nil {
		return nil, err
	}
	text, err := opener.Open(nil, data[saltBytes:saltBytes+nonceBytes], data[saltBytes+nonceBytes:], associated(id, workflow))
	if err != nil {
		return nil, fmt.Errorf("payload cannot be decrypted with key %q: it was changed, or encrypted with another key of this id: %w", id, err)
	}
	var out commonpb.Payload
	if err := proto.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("parse decrypted payload: %w", err)
	}
	return &out, nil
}

func aead(secret, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, salt, keyInfo, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive payload key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("payload cipher: %w", err)
	}
	return cipher.NewGCM(block)
}

// associated returns the data that is authenticated with a payload. Neither encoding nor key id contains a line break.
func associated(id, workflow string) []byte { return []byte(encoding + "\n" + id + "\n" + workflow) }
