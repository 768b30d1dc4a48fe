package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// C1: Temporal keeps a refusal, and gives it to each later request with the same body. They know by its id that it is not theirs,
// and start another run. Without it the number could not be used with this body any more.
func TestConference_RefusedBeforeRequestArrives_RefusalNamesRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   berth.Code
		happen func(*conferenceTest)
	}{
		"not placed":  {berth.CodeUnavailable, func(h *conferenceTest) { h.replyLost = true }},
		"no capacity": {berth.CodeNodeFull, func(h *conferenceTest) { h.unit("u1").capacity = 0 }},
		"refused":     {berth.CodeUnitRefused, func(h *conferenceTest) { h.unit("u1").reply = nack }},
		"unit lost": {berth.CodeNodeFailed, func(h *conferenceTest) {
			h.slow(berth.ActivityCreateConference, 2*time.Second)
			h.at(time.Second, func() { h.dies("u1") })
		}},
		"released": {berth.CodeEnded, func(h *conferenceTest) {
			h.slow(berth.ActivityCreateConference, 2*time.Second)
			h.at(time.Second, h.release)
		}},
		"cancelled": {berth.CodeEnded, func(h *conferenceTest) {
			h.slow(berth.ActivityCreateConference, 2*time.Second)
			h.at(time.Second, h.env.CancelWorkflow)
		}},
	} {
		for _, late := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", request late"}[late], func(t *testing.T) {
				t.Parallel()
				h := newConferenceTest(t, "u1")
				c.happen(h)
				if h.requestLost = late; late {
					h.saved = func(in workflows.SaveInput) (reply workflows.SaveReply) {
						if in.Conference.Status.Final() {
							h.submit("h1", "r1", &h.created)
						}
						return reply
					}
				}
				h.run(func(in *workflows.ConferenceInput) { in.Spec.Recoverable = false })
				requireRefusalOf(t, "r1", c.code, h.created.err)
			})
		}
	}
}

// A12: the same for an execution that is cancelled before it is accepted.
func TestExecution_CancelledBeforeAccepted_RefusalNamesRequest(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.assign = func(int, workflows.AssignInput) (workflows.AssignReply, error) {
		r.env.CancelWorkflow()
		return workflows.AssignReply{}, temporal.NewNonRetryableApplicationError("no node", string(berth.CodeNoNode), nil)
	}
	_, err := r.start(executionInput())
	require.True(t, temporal.IsCanceledError(err))
	requireRefusalOf(t, "r1", berth.CodeCancelled, r.submitted.err)
}

// requireRefusalOf requires that an update was refused with a code, and that the refusal names the request.
func requireRefusalOf(t *testing.T, id string, code berth.Code, err error) {
	t.Helper()
	requireAppError(t, err, code)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	var detail berth.Refusal
	require.NoError(t, app.Details(&detail))
	require.Equal(t, id, detail.SubmissionID)
}
