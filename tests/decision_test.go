package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"berth"
	"berth/internal/payload"
	"berth/workflows"
)

// dying is a worker that dies once: after a local activity has published an end, and before the workflow task in which it did is
// completed. All that the history then lacks is done again, in a world that has changed meanwhile.
type dying struct {
	mu        sync.Mutex
	published []string // each end, as it was published
	events    map[int]string
	changed   []string // events that were published with two contents
	lost      bool     // the completion of the workflow task
	died      chan struct{}
}

func newDying() *dying { return &dying{events: map[int]string{}, died: make(chan struct{})} }

// dead reports whether the end was published at least once: the world is another one from then on.
func (d *dying) dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.published) > 0
}

// publish publishes events, of which first is the first's number, as append_events does: each number once.
func (d *dying) publish(t *testing.T, first int, events ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, ev := range events {
		b, err := json.Marshal(ev)
		require.NoError(t, err)
		if before, ok := d.events[first+i]; ok && before != string(b) {
			d.changed = append(d.changed, fmt.Sprintf("%d: %s, then %s", first+i, before, b))
		}
		d.events[first+i] = string(b)
	}
}

// end publishes an end.
func (d *dying) end(facts ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published = append(d.published, fmt.Sprint(facts...))
}

// connection drops the first completion of a workflow task after the end was published.
func (d *dying) connection(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if strings.HasSuffix(method, "/RespondWorkflowTaskCompleted") && d.dead() {
		d.mu.Lock()
		first := !d.lost
		d.lost = true
		d.mu.Unlock()
		if first {
			close(d.died)
			return grpcstatus.Error(codes.NotFound, "the worker has died")
		}
	}
	return call(ctx, method, req, reply, conn, opts...)
}

// decided is one run whose worker dies.
type decided struct {
	*dying
	t      *testing.T
	client temporalclient.Client
	queue  string
	id     string
}

// on runs a worker with activities.
func (d *decided) on(queue string, activities map[string]any, workflow bool) {
	d.t.Helper()
	w := worker.New(d.client, queue, worker.Options{DisableWorkflowWorker: !workflow})
	for name, f := range activities {
		w.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	if workflow {
		d.register(w)
	}
	require.NoError(d.t, w.Start())
	d.t.Cleanup(w.Stop)
}

func (d *decided) register(w worker.Worker) {
	for name, f := range map[string]any{
		workflows.ConferenceWorkflow: workflows.Conference, workflows.ExecutionWorkflow: workflows.Execution,
		workflows.TurnWorkflow: workflows.Turn,
	} {
		w.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
}

// options are those of the run. A lost completion is noticed when the workflow task times out.
func (d *decided) options() temporalclient.StartWorkflowOptions {
	return temporalclient.StartWorkflowOptions{
		ID: d.id, TaskQueue: d.queue, WorkflowTaskTimeout: 3 * time.Second,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY, // as of turns
	}
}

// start starts the run.
func (d *decided) start(name string, in any) temporalclient.WorkflowRun {
	d.t.Helper()
	run, err := d.client.ExecuteWorkflow(d.t.Context(), d.options(), name, in)
	require.NoError(d.t, err)
	return run
}

// update sends an update, and starts the run if there is none.
func (d *decided) update(start temporalclient.WithStartWorkflowOperation, name string, arg any) error {
	h, err := d.client.UpdateWithStartWorkflow(d.t.Context(), temporalclient.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start, UpdateOptions: temporalclient.UpdateWorkflowOptions{
			WorkflowID: d.id, UpdateName: name, Args: []any{arg}, WaitForStage: temporalclient.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return err
	}
	return h.Get(d.t.Context(), nil)
}

// P2, C13, A10: a worker dies after it has published an end. What the next one finds would lead to another end, or to none; it
// publishes the same one, and the run ends with it.
func TestWorkflows_WorkerDiesAfterPublishingAnEnd_NextPublishesTheSame(t *testing.T) {
	t.Parallel()
	s := prepareStack(t, t.TempDir())
	t.Cleanup(s.close)
	s.startInfra()
	for name, run := range map[string]func(*decided) (end string){
		"conference without capacity, which then exists": noCapacity,
		"execution past its deadline, then cancelled":    pastDeadline,
		"turn without further segments, which then come": noFurtherSegment,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &decided{dying: newDying(), t: t, queue: "decided " + name, id: "decided:" + name}
			c, err := temporalclient.Dial(temporalclient.Options{
				HostPort: s.ready.TemporalAddr, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
				DataConverter: payload.NewDataConverter(payload.Keys{}), FailureConverter: payload.NewFailureConverter(payload.Keys{}),
				ConnectionOptions: temporalclient.ConnectionOptions{
					DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(d.connection)},
				},
			})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			d.client = c
			end := run(d)
			require.GreaterOrEqual(t, len(d.published), 2, "the end is published again")
			for _, published := range d.published {
				require.Equal(t, end, published)
			}
			require.Empty(t, d.changed)
		})
	}
}

// noCapacity is a conference for which there is no capacity. When the end is published, there is.
func noCapacity(d *decided) string {
	unit := berth.NodeRef{NodeID: "u1", Generation: 1}
	d.on(d.queue, map[string]any{
		workflows.PlaceConferenceActivity: func(_ context.Context, in workflows.PlaceInput) (workflows.PlaceReply, error) {
			if !d.dead() {
				return workflows.PlaceReply{Code: berth.CodeNodeFull, Message: "no capacity"}, nil
			}
			owner := berth.ConferenceOwner{NodeID: unit.NodeID, Generation: unit.Generation, Epoch: 1}
			d.publish(d.t, in.FirstEvent, workflows.Placed(in.Conference, owner, in.At).Event(in.At))
			return workflows.PlaceReply{Owner: owner, Slot: berth.Assignment{LeaseID: "conference:c1:1", NodeRef: unit}, Events: 1}, nil
		},
		workflows.SaveConferenceActivity: func(_ context.Context, in workflows.SaveInput) (workflows.SaveReply, error) {
			for i, ev := range in.Events {
				d.publish(d.t, in.FirstEvent+i, ev)
			}
			if in.Conference.Status.Final() {
				d.end(in.Conference.Status, " ", in.Conference.End, " ", in.Conference.EndedAt.UTC())
			}
			return workflows.SaveReply{}, nil
		},
		workflows.ReadUnitStateActivity: func(context.Context, berth.NodeRef) (workflows.UnitState, error) { return workflows.UnitState{}, nil },
		workflows.NotifyLinkActivity:    func(context.Context, workflows.LinkRequest) error { return nil },
	}, true)
	d.on(berth.NodeTaskQueue(unit.NodeID, unit.Generation), map[string]any{
		berth.ActivityCreateConference:  func(context.Context, berth.UnitConference) error { return nil },
		berth.ActivityReleaseConference: func(context.Context, berth.UnitRelease) error { return nil },
	}, false)
	run := d.start(workflows.ConferenceWorkflow, workflows.ConferenceInput{
		ConferenceID: "c1", UserID: "alice", RequestHash: "h1",
		Spec:  berth.ConferenceSpec{E164: "8613800000001", EndAt: time.Now().Add(15 * time.Second), Recoverable: true},
		Rules: workflows.ConferenceRules{Retry: time.Minute, GiveUp: time.Minute, Command: 4 * time.Second},
	})
	var conf berth.Conference
	require.NoError(d.t, run.Get(d.t.Context(), &conf))
	require.Equal(d.t, berth.EndNoCapacity, conf.End)
	return fmt.Sprint(conf.Status, " ", conf.End, " ", conf.EndedAt.UTC())
}

// pastDeadline is an execution that gets no node before its deadline. When its end is written, it is cancelled.
func pastDeadline(d *decided) string {
	d.on(d.queue, map[string]any{
		workflows.AssignNodeActivity: func(context.Context, workflows.AssignInput) (workflows.AssignReply, error) {
			return workflows.AssignReply{}, temporal.NewNonRetryableApplicationError("no capacity", string(berth.CodeNodeFull), nil)
		},
		workflows.SaveExecutionActivity: func(_ context.Context, in berth.ExecutionRow) error {
			if in.Status.Final() {
				d.end(in.Status, " ", in.Code, " ", in.EndedAt.UTC())
			}
			return nil
		},
		workflows.LeaveWaitingActivity: func(context.Context, workflows.NodeWait) error { return nil },
	}, true)
	run := d.start(workflows.ExecutionWorkflow, workflows.ExecutionInput{
		ExecutionID: "x1", UserID: "alice", Executor: "resize", RequestHash: "h1",
		Where: berth.Requirements{PoolID: "resize"}, Timeout: time.Second, Deadline: time.Second,
	})
	<-d.died
	require.NoError(d.t, d.client.CancelWorkflow(d.t.Context(), d.id, ""))
	var failed *temporal.ApplicationError
	require.ErrorAs(d.t, run.Get(d.t.Context(), nil), &failed)
	var e berth.Execution
	require.NoError(d.t, failed.Details(&e))
	return fmt.Sprint(e.Status, " ", e.Code, " ", e.EndedAt.UTC())
}

// noFurtherSegment is a turn that times out. When its end is published, Redis is found to have been unavailable, and a segment is
// submitted.
func noFurtherSegment(d *decided) string {
	node := berth.NodeRef{NodeID: "n1", Generation: 1}
	d.on(d.queue, map[string]any{
		workflows.DispatchJobActivity: func(_ context.Context, in workflows.DispatchInput) (berth.Assignment, error) {
			return berth.Assignment{LeaseID: in.LeaseID(), JobID: in.JobID, NodeRef: node, PoolID: in.PoolID}, nil
		},
		workflows.CheckAvailabilityActivity: func(context.Context) (workflows.Availability, error) {
			if d.dead() {
				return workflows.Availability{}, nil
			}
			return workflows.Availability{For: time.Hour}, nil
		},
		workflows.PublishTurnActivity: func(_ context.Context, in workflows.TurnEvents) error {
			for i, ev := range in.Events {
				d.publish(d.t, in.First+i, ev)
				if ev.Type == berth.EventDone {
					d.end(ev.Jobs, " ", ev.Reason)
				}
			}
			return nil
		},
		workflows.FinalizeTurnActivity: func(context.Context, workflows.TurnRef) error { return nil },
		workflows.ReleaseSlotsActivity: func(context.Context, workflows.HeldSlots) error { return nil },
		workflows.LeaveWaitingActivity: func(context.Context, workflows.NodeWait) error { return nil },
		workflows.ConfirmSlotsActivity: func(_ context.Context, in workflows.HeldSlots) (workflows.ConfirmedSlots, error) {
			return workflows.ConfirmedSlots{Slots: make([]workflows.ConfirmedSlot, len(in.Slots))}, nil
		},
	}, true)
	d.on(node.TaskQueue(), map[string]any{
		berth.ActivityTranslate: func(_ context.Context, in berth.JobInput) (berth.JobOutput, error) {
			return berth.JobOutput{Text: in.Text}, nil
		},
	}, false)
	submit := func(index int) error {
		request := fmt.Sprintf("r%d", index)
		start := d.client.NewWithStartWorkflowOperation(d.options(), workflows.TurnWorkflow, workflows.TurnInput{
			TurnID: "t1", SessionID: "s1", UserID: "alice", SrcLang: "en", TgtLang: "es", Timeout: time.Second, JobTimeout: time.Minute,
		})
		return d.update(start, workflows.UpdateDispatch, workflows.DispatchRequest{
			SubmissionID: request, RequestHash: request, SessionSrcLang: "en", SessionTgtLang: "es", Text: "words",
			JobRequest: berth.JobRequest{
				Job:    berth.Job{SessionID: "s1", Index: index, SrcLang: "en", TgtLang: "es"},
				UserID: "alice", RequestID: request, PoolID: "p1",
			},
		})
	}
	require.NoError(d.t, submit(0))
	<-d.died
	err := submit(1)
	if _, over := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); !over { // the next worker may have ended the run before
		var refused *temporal.ApplicationError
		require.ErrorAs(d.t, err, &refused)
		require.Equal(d.t, string(berth.CodeTurnFinalized), refused.Type())
	}
	var turn berth.Turn
	require.NoError(d.t, d.client.GetWorkflow(d.t.Context(), d.id, "").Get(d.t.Context(), &turn))
	return fmt.Sprint(len(turn.Jobs), " ", turn.Reason)
}
