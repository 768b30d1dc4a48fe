package workers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/internal/fleet"
	"berth/workflows"
)

func conferenceWorker(c client.Client, acts Activities, opts Options) worker.Worker {
	conferences := acts.Conferences
	w := worker.New(c, workflows.TaskQueueConferences, worker.Options{
		WorkerStopTimeout:                       opts.Drain,
		MaxConcurrentWorkflowTaskPollers:        8, // all conferences of a lost unit are recovered at the same time
		MaxConcurrentLocalActivityExecutionSize: 200,
		LocalActivityWorkerOnly:                 true,
		StickyScheduleToStartTimeout:            time.Second,
	})
	w.RegisterWorkflowWithOptions(workflows.Conference, workflow.RegisterOptions{Name: workflows.ConferenceWorkflow})
	registerActivities(w, map[string]any{
		workflows.PlaceConferenceActivity: conferences.PlaceConference,
		workflows.SaveConferenceActivity:  conferences.SaveConference,
		workflows.PrepareAdoptionActivity: conferences.PrepareAdoption,
		workflows.NotifyLinkActivity:        conferences.NotifyLink,
		workflows.ReadUnitStateActivity:      conferences.ReadUnitState,
	})
	return w
}

// StartLink has the link of a media unit's generation take up what befell it, starting it where it does not run. What
// befalls other nodes is known to whoever waits for them.
func StartLink(ctx context.Context, c client.Client, n berth.NodeNotice) error {
	if n.Kind != berth.NodeMedia {
		return nil
	}
	_, err := c.SignalWithStartWorkflow(ctx, workflows.LinkWorkflowID(n.NodeID, n.Generation), workflows.SignalNotice, n,
		client.StartWorkflowOptions{TaskQueue: workflows.TaskQueueLinks}, workflows.LinkWorkflow,
		workflows.LinkInput{NodeID: n.NodeID, Generation: n.Generation})
	if err != nil {
		return fmt.Errorf("tell the link of %s: %w", n.NodeID, err)
	}
	return nil
}

// probed is how many silent units are asked.
const probed = 5

// ConfirmLoss asks some of a kind's silent nodes for something, past Redis and the API: the loss is confirmed when none of
// them answers (C21). Only media units can be asked.
func ConfirmLoss(ctx context.Context, c client.Client, now *fleet.Snapshot, kind berth.NodeKind) (bool, error) {
	if kind != berth.NodeMedia {
		return false, nil
	}
	var silent []workflows.NodeRef
	for id, n := range now.Nodes {
		if n.Kind == kind && n.State == berth.NodeSuspect {
			silent = append(silent, workflows.NodeRef{NodeID: id, Generation: n.Generation})
		}
	}
	if len(silent) == 0 {
		return false, nil
	}
	rand.Shuffle(len(silent), func(i, j int) { silent[i], silent[j] = silent[j], silent[i] })
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.ProbeWorkflowID(uuid.NewString()), TaskQueue: workflows.TaskQueueLinks, WorkflowExecutionTimeout: 10 * time.Second,
	}, workflows.ProbeWorkflow, workflows.ProbeInput{Units: silent[:min(len(silent), probed)]})
	if err != nil {
		return false, fmt.Errorf("ask silent units: %w", err)
	}
	var answered int
	if err := run.Get(ctx, &answered); err != nil {
		return false, fmt.Errorf("ask silent units: %w", err)
	}
	return answered == 0, nil
}
