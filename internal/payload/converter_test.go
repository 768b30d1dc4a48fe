package payload_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"berth/internal/payload"
)

var alice = converter.WorkflowSerializationContext{Namespace: "default", WorkflowID: "task:alice"}

func TestDataConverter_Values_RoundTripInAndOutOfWorkflows(t *testing.T) {
	t.Parallel()
	root := payload.NewDataConverter(keys(t, "a:"+key("a")))
	of := converter.WithDataConverterSerializationContext(root, alice)
	aware, ok := of.(workflow.ContextAware)
	require.True(t, ok)
	inside := aware.WithWorkflowContext(nil)
	p, err := of.ToPayloads("one", map[string]any{"two": "three"}, nil)
	require.NoError(t, err)
	require.NotContains(t, p.String(), "three")
	for _, c := range []converter.DataConverter{root, of, inside, aware.WithContext(t.Context())} {
		var one string
		var two map[string]string
		var none *string
		require.NoError(t, c.FromPayloads(p, &one, &two, &none))
		require.Equal(t, "one", one)
		require.Equal(t, map[string]string{"two": "three"}, two)
		require.Nil(t, none)
	}
}

// With an error instead of a panic, Temporal's SDK would fail the workflow.
func TestDataConverter_KeyMissing_FailsWorkflowTaskNotWorkflow(t *testing.T) { // B7
	t.Parallel()
	sealed, err := payload.NewDataConverter(keys(t, "a:"+key("a"))).ToPayload("text")
	require.NoError(t, err)
	without := payload.NewDataConverter(payload.Keys{})
	var s string
	require.ErrorContains(t, without.FromPayload(sealed, &s), "BERTH_PAYLOAD_KEYS is not set")

	aware, ok := without.(workflow.ContextAware)
	require.True(t, ok)
	inside := aware.WithWorkflowContext(nil)
	require.Panics(t, func() { _ = inside.FromPayload(sealed, &s) })
	require.Panics(t, func() {
		_ = converter.WithDataConverterSerializationContext(inside, alice).FromPayload(sealed, &s)
	}, "also with a context that is set afterwards")
}

func TestFailureConverter_WithKey_HidesEverythingButTheType(t *testing.T) { // B7
	t.Parallel()
	c := payload.NewFailureConverter(keys(t, "a:"+key("a")))
	cause := errors.New("the provider said: " + secretText)
	err := temporal.NewApplicationErrorWithCause(secretText, "provider_rejected", cause, map[string]string{"detail": secretText})
	f := c.ErrorToFailure(err)
	b, merr := proto.Marshal(f)
	require.NoError(t, merr)
	require.NotContains(t, string(b), "applicant")
	require.Contains(t, string(b), "provider_rejected")

	var back *temporal.ApplicationError
	before := proto.CloneOf(f)
	require.ErrorAs(t, c.FailureToError(f), &back)
	require.True(t, proto.Equal(before, f), "the SDK stores the failure of a local activity after it has been read")
	require.Equal(t, secretText, back.Message())
	require.Equal(t, "provider_rejected", back.Type())
	var detail map[string]string
	require.NoError(t, back.Details(&detail))
	require.Equal(t, secretText, detail["detail"])
	require.ErrorContains(t, errors.Unwrap(back), cause.Error())
}

func TestFailureConverter_WithoutKey_LeavesFailuresReadable(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"", "none,a:" + key("a")} {
		f := payload.NewFailureConverter(keys(t, list)).ErrorToFailure(errors.New("no such file"))
		require.Equal(t, "no such file", f.GetMessage())
	}
}

func TestFailureConverter_KeyMissing_WorkflowsPanicAndClientsDoNot(t *testing.T) {
	t.Parallel()
	activity := converter.ActivitySerializationContext{Namespace: "default", WorkflowID: "task:alice", ActivityType: "RunStep"}
	of := func(c converter.FailureConverter, sc converter.SerializationContext) converter.FailureConverter {
		return converter.WithFailureConverterSerializationContext(c, sc)
	}
	with, without := payload.NewFailureConverter(keys(t, "a:"+key("a"))), payload.NewFailureConverter(payload.Keys{})
	sealed := of(with, activity).ErrorToFailure(errors.New("no such file"))
	read := func(c converter.FailureConverter) string { return c.FailureToError(sealed).Error() }
	require.Contains(t, read(of(with, activity)), "no such file")
	require.Contains(t, read(of(with, alice)), "no such file", "a workflow fails with the failure of its activity")
	require.Panics(t, func() { read(of(without, activity)) })
	require.Contains(t, read(of(without, alice)), "Encoded failure")
	require.Contains(t, read(without), "Encoded failure")
}
