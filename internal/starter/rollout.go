package starter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/pause"
	"berth/workflows"
)

// VersionStatus is the status of a version of a worker deployment.
type VersionStatus string

// The statuses.
const (
	VersionInactive VersionStatus = "inactive" // its workers poll and get nothing, because it was never current
	VersionCurrent  VersionStatus = "current"  // new runs begin on it
	VersionRamping  VersionStatus = "ramping"  // some new runs begin on it; set with Temporal's own command
	VersionDraining VersionStatus = "draining" // open runs may be pinned to it
	VersionDrained  VersionStatus = "drained"  // no open run is pinned to it
)

// Rollout is the state of a worker deployment.
type Rollout struct {
	Deployment string
	Current    string // build id; empty where workers without a version receive the new runs
	Versions   []RolloutVersion
	// Unversioned counts the open runs by workflow type that no worker with a version has continued yet.
	Unversioned map[string]int64
}

// RolloutVersion is one version of a worker deployment.
type RolloutVersion struct {
	BuildID   string
	CreatedAt time.Time
	Status    VersionStatus
	// Runs counts the open runs by workflow type, as Temporal's visibility store has them: a change is seen after up to seconds.
	Runs map[string]int64
}

// Stoppable reports whether the workers of a version that was current have no work left.
func (v RolloutVersion) Stoppable() bool { return v.Status == VersionDrained && len(v.Runs) == 0 }

// PinnedWorkflows returns the types of workflows whose runs stay on one version.
func PinnedWorkflows() []string {
	return []string{workflows.TaskWorkflow, workflows.TurnWorkflow, workflows.ExecutionWorkflow, workflows.ConferenceWorkflow}
}

// Rollout returns the state of a worker deployment, the newest version first; CodeNotFound when no worker of it ever polled.
func (s *Starter) Rollout(ctx context.Context, deployment string) (Rollout, error) {
	d, err := s.Client.WorkerDeploymentClient().GetHandle(deployment).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return Rollout{}, berth.Errorf(berth.CodeNotFound, "Temporal does not know the deployment %s: no worker with BERTH_DEPLOYMENT=%s has started", deployment, deployment)
	}
	if err != nil {
		return Rollout{}, fmt.Errorf("read deployment %s: %w", deployment, unanswered(outcome(err)))
	}
	out := Rollout{Deployment: deployment}
	routing := d.Info.RoutingConfig
	if routing.CurrentVersion != nil {
		out.Current = routing.CurrentVersion.BuildID
	}
	for _, summary := range d.Info.VersionSummaries {
		v := RolloutVersion{BuildID: summary.Version.BuildID, CreatedAt: summary.CreateTime, Status: VersionInactive}
		switch {
		case v.BuildID == out.Current:
			v.Status = VersionCurrent
		case routing.RampingVersion != nil && v.BuildID == routing.RampingVersion.BuildID:
			v.Status = VersionRamping
		case summary.DrainageStatus == client.WorkerDeploymentVersionDrainageStatusDraining:
			v.Status = VersionDraining
		case summary.DrainageStatus == client.WorkerDeploymentVersionDrainageStatusDrained:
			v.Status = VersionDrained
		}
		if v.Runs, err = s.countRuns(ctx, onVersion(deployment, v.BuildID)); err != nil {
			return Rollout{}, err
		}
		out.Versions = append(out.Versions, v)
	}
	slices.SortStableFunc(out.Versions, func(a, b RolloutVersion) int { return b.CreatedAt.Compare(a.CreatedAt) })
	out.Unversioned, err = s.countRuns(ctx, unversioned)
	return out, err
}

// Conditions on the version of a run in queries of the visibility store.
const unversioned = `TemporalWorkerDeploymentVersion IS NULL`

func onVersion(deployment, build string) string {
	return fmt.Sprintf(`TemporalWorkerDeploymentVersion = "%s:%s"`, deployment, build)
}

// countRuns counts the open runs of the pinned workflows by type.
func (s *Starter) countRuns(ctx context.Context, condition string) (map[string]int64, error) {
	counts := map[string]int64{}
	for _, name := range PinnedWorkflows() {
		n, err := s.Client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Query: fmt.Sprintf(`ExecutionStatus = "Running" AND WorkflowType = "%s" AND %s`, name, condition),
		})
		if err != nil {
			return nil, fmt.Errorf("count runs: %w", unanswered(outcome(err)))
		}
		if n.GetCount() > 0 {
			counts[name] = n.GetCount()
		}
	}
	return counts, nil
}

// registrationPause is the time between attempts to make a version current whose workers are still starting.
const registrationPause = time.Second

// SetCurrentVersion makes new runs of a deployment begin on a version; it is idempotent. Until ctx ends it waits for workers of the
// version that poll every task queue which is in use; the error states which are missing.
func (s *Starter) SetCurrentVersion(ctx context.Context, deployment, build string) error {
	var incomplete error
	for {
		_, err := s.Client.WorkerDeploymentClient().GetHandle(deployment).SetCurrentVersion(ctx,
			client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		if err == nil {
			return nil
		}
		failed := unanswered(outcome(err))
		if notFound, ok := errors.AsType[*serviceerror.NotFound](err); ok {
			incomplete = notFound
		} else if refused, ok := errors.AsType[*serviceerror.FailedPrecondition](err); ok {
			incomplete = refused
		} else if incomplete == nil || berth.CodeOf(failed) != berth.CodeUnavailable {
			return fmt.Errorf("make version %s current: %w", build, failed)
		}
		if !pause.For(ctx, registrationPause) {
			return berth.Errorf(berth.CodeConflict, "version %s of %s has no workers for all task queues in use; start them with BERTH_DEPLOYMENT=%s and BERTH_BUILD_ID=%s",
				build, deployment, deployment, build).With(incomplete)
		}
	}
}

// UpgradeConferences wakes the open conferences that do not run on the current version, so that they continue on it, and returns
// their number. One whose unit has to acknowledge a command continues there afterwards.
func (s *Starter) UpgradeConferences(ctx context.Context, deployment, current string) (signalled int, err error) {
	var g errgroup.Group
	g.SetLimit(maxSignals)
	err = s.listRuns(ctx, fmt.Sprintf(`ExecutionStatus = "Running" AND WorkflowType = "%s" AND (%s OR TemporalWorkerDeploymentVersion != "%s:%s")`,
		workflows.ConferenceWorkflow, unversioned, deployment, current), func(run Run) error {
		signalled++
		g.Go(func() error {
			_, err := s.signal(ctx, run.WorkflowID, workflows.SignalUpgrade, nil)
			return err
		})
		return nil
	})
	return signalled, errors.Join(err, g.Wait())
}
