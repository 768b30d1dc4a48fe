package workers

import (
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

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
		workflows.NotifyLinkActivity:      conferences.NotifyLink,
		workflows.ReadUnitStateActivity:   conferences.ReadUnitState,
	})
	return w
}
