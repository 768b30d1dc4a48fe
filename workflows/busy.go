package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// minBusyPause and maxBusyPause bound the pause before a busy node gets it again that did not say when, which doubles. A node that
	// did is asked no earlier, up to maxBusyAsked.
	minBusyPause = time.Second
	maxBusyPause = 30 * time.Second
	maxBusyAsked = 10 * time.Minute
	// maxBusy bounds how often busy nodes may return one piece of work.
	maxBusy = 30
)

// busyNodes are the nodes that have returned work because they were busy, and are not asked before their times.
type busyNodes struct {
	nodes []busyNode
	times int  // how often they returned it
	last  bool // the last attempt was returned
}

type busyNode struct {
	berth.NodeRef
	until time.Time
}

// returned reports whether a node has returned its work, and for how long it is not asked.
func (b *busyNodes) returned(ctx workflow.Context, node berth.NodeRef, err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	b.last = ok && app.Type() == berth.ErrorBusy
	if !b.last {
		return false
	}
	workflow.GetMetricsHandler(ctx).Counter(metricBusy).Inc(1)
	pause := min(minBusyPause<<min(b.times, 5), maxBusyPause)
	pause = max(pause, min(app.NextRetryDelay(), maxBusyAsked))
	b.times++
	b.nodes = slices.DeleteFunc(b.nodes, func(n busyNode) bool { return n.NodeID == node.NodeID })
	b.nodes = append(b.nodes, busyNode{node, workflow.Now(ctx).Add(pause)})
	return true
}

// now returns the nodes that are busy now.
func (b *busyNodes) now(ctx workflow.Context) (nodes []berth.NodeRef) {
	for _, n := range b.nodes {
		if workflow.Now(ctx).Before(n.until) {
			nodes = append(nodes, n.NodeRef)
		}
	}
	return nodes
}

// left returns the time until one of them may get it again; 0 if none is busy.
func (b *busyNodes) left(ctx workflow.Context) (left time.Duration) {
	for _, n := range b.nodes {
		if d := n.until.Sub(workflow.Now(ctx)); d > 0 && (left == 0 || d < left) {
			left = d
		}
	}
	return left
}
