package lua

import (
	"context"
	"time"
)

// Codes of mark_pollers and check_pollers.
const (
	PollersMarked  = "MARKED"
	PollersUnknown = "UNKNOWN" // check_pollers: Redis lost its data recently
)

const (
	// PollerEvery is how often a process calls MarkPollers.
	PollerEvery = 10 * time.Second
	// pollerTTL is how long a process is presumed to poll after that: longer than a restart takes.
	pollerTTL = 3 * PollerEvery
)

// PolledUpstream returns the name by which a process that polls the task queue of a model states that it can also call one of the upstreams: it has
// the API key.
func PolledUpstream(model, upstream string) string { return "upstream." + model + "\n" + upstream }

// MarkPollers states that this process polls these task queues of model calls, or can call these upstreams, see PolledUpstream.
func (s *Scripts) MarkPollers(ctx context.Context, queues []string) error {
	r := s.call(ctx, "mark_pollers", []string{s.keys.Pollers()}, with([]any{millis(pollerTTL)}, queues...)...)
	r.code(PollersMarked)
	return r.done()
}

// CheckPollers returns those of the task queues that no process polls, and those of the upstreams that none can call. After a loss of Redis's data it returns none until the
// pollers are known again.
func (s *Scripts) CheckPollers(ctx context.Context, queues []string) (unpolled []string, err error) {
	r := s.call(ctx, "check_pollers", []string{s.keys.Pollers(), s.keys.Guard()}, with([]any{millis(pollerTTL)}, queues...)...)
	r.code(GuardOK, PollersUnknown)
	return r.texts(), r.done()
}
