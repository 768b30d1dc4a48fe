// Package payload encrypts what Temporal stores: arguments and results of workflows, activities, signals, updates and
// queries, heartbeats, summaries, and the messages and stack traces of failures.
package payload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"
)

// NewDataConverter returns Temporal's data converter with a Codec.
//
// A payload that a workflow cannot decrypt panics. Temporal's SDK then fails the workflow task, which is retried, on another
// worker or after the settings were corrected. With an error it would fail the workflow, or drop the signal.
func NewDataConverter(keys Keys) converter.DataConverter {
	return newDataConverter(NewCodec(keys), false)
}

type dataConverter struct {
	converter.DataConverter
	codec    Codec
	workflow bool // within a workflow
}

func newDataConverter(codec Codec, inWorkflow bool) dataConverter {
	var c converter.PayloadCodec = codec
	if inWorkflow {
		c = insistent{codec}
	}
	return dataConverter{
		DataConverter: converter.NewCodecDataConverter(plainText, c), codec: codec, workflow: inWorkflow,
	}
}

// plainText is Temporal's data converter with plainJSON.
var plainText = converter.NewCompositeDataConverter(
	converter.NewNilPayloadConverter(), converter.NewByteSlicePayloadConverter(), converter.NewProtoJSONPayloadConverter(),
	converter.NewProtoPayloadConverter(), plainJSON{converter.NewJSONPayloadConverter()},
)

// plainJSON does not escape HTML: payloads are not embedded in pages, and a text of < would be six times as long, which counts towards
// Temporal's limits.
type plainJSON struct {
	*converter.JSONPayloadConverter
}

// ToPayload implements converter.PayloadConverter.
func (c plainJSON) ToPayload(value any) (*commonpb.Payload, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("%w: %w", converter.ErrUnableToEncode, err)
	}
	return &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(c.Encoding())},
		Data:     bytes.TrimSuffix(out.Bytes(), []byte("\n")),
	}, nil
}

// WithSerializationContext implements converter.DataConverterWithSerializationContext.
func (d dataConverter) WithSerializationContext(sc converter.SerializationContext) converter.DataConverter {
	return newDataConverter(d.codec.of(sc), d.workflow)
}

// WithWorkflowContext implements workflow.ContextAware.
func (d dataConverter) WithWorkflowContext(workflow.Context) converter.DataConverter {
	return newDataConverter(d.codec, true)
}

// WithContext implements workflow.ContextAware.
func (d dataConverter) WithContext(context.Context) converter.DataConverter { return d }

// insistent panics if a payload cannot be decrypted.
type insistent struct{ Codec }

// Decode implements converter.PayloadCodec.
func (c insistent) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out, err := c.Codec.Decode(payloads)
	if err != nil {
		panic(err)
	}
	return out, nil
}

// NewFailureConverter returns Temporal's failure converter. With a key it encrypts messages, stack traces and details; the
// type of a failure stays readable.
func NewFailureConverter(keys Keys) converter.FailureConverter {
	return newFailureConverter(keys, NewDataConverter(keys))
}

type failureConverter struct {
	*temporal.DefaultFailureConverter
	keys Keys
}

func newFailureConverter(keys Keys, data converter.DataConverter) failureConverter {
	return failureConverter{keys: keys, DefaultFailureConverter: temporal.NewDefaultFailureConverter(
		temporal.DefaultFailureConverterOptions{DataConverter: data, EncodeCommonAttributes: keys.Encrypt()})}
}

// WithSerializationContext implements converter.FailureConverterWithSerializationContext. Only workflows convert the failure
// of an activity back to an error, so one that cannot be decrypted panics as in NewDataConverter.
func (f failureConverter) WithSerializationContext(sc converter.SerializationContext) converter.FailureConverter {
	_, ofActivity := sc.(converter.ActivitySerializationContext)
	return newFailureConverter(f.keys, newDataConverter(NewCodec(f.keys).of(sc), ofActivity))
}

// FailureToError implements converter.FailureConverter. It leaves the failure unchanged: Temporal's converter writes the
// decrypted message into it, and the SDK then stores the failure of a local activity in the history.
func (f failureConverter) FailureToError(failure *failurepb.Failure) error {
	return f.DefaultFailureConverter.FailureToError(proto.CloneOf(failure))
}
