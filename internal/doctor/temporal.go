package doctor

import (
	"context"
	"errors"
	"log/slog"

	"go.temporal.io/api/workflowservice/v1"

	"berth/internal/health"
	"berth/internal/temporalconn"
)

// temporal checks the server as processes do, and states the same problems.
func (d *doctor) temporal(ctx context.Context, searchAttributes []string) {
	const subject = "temporal"
	options, err := d.cfg.Temporal.Options(slog.New(slog.DiscardHandler))
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	client, err := temporalconn.Open(options)
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	defer client.Close()
	checker := temporalconn.NewChecker(options, client, searchAttributes)
	checking, cancel := context.WithTimeout(ctx, checkTimeout/2) // then there is time to find out why it failed
	problem, wrong := errors.AsType[*health.Problem](checker.Check(checking))
	cancel()
	if wrong {
		d.add(Error, subject, problem.Advice, "%s", problem.Said)
		return
	}
	system, err := client.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		d.add(Warning, subject, "", "the version of the server cannot be read: %s", err)
	} else {
		d.add(OK, subject, "", "server %s", system.GetServerVersion())
	}
	namespace := d.cfg.Temporal.Namespace
	if _, err := checker.Lacking(ctx); err != nil {
		d.add(Warning, subject, "", "search attributes of namespace %s cannot be listed: %s", namespace, err)
		return
	}
	d.add(OK, subject, "", "namespace %s with all search attributes", namespace)
}
