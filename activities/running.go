package activities

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"berth"
	"berth/internal/redisconn"
	"berth/lua"
)

// Running registers the model calls of this process by task, so that a call stops as soon as its task is cancelled.
// The notification is a hint: a call that misses it is rejected at its next append or cancelled by its next heartbeat.
// Run owns the table.
type Running struct {
	scripts *lua.Scripts
	logger  *slog.Logger
	enter   chan entry
	leave   chan entry
	done    chan struct{}
}

type entry struct {
	task   string // both ids of the task
	cancel context.CancelCauseFunc
	id     uint64
}

// NewRunning returns an empty table. It receives notifications while Run runs.
func NewRunning(scripts *lua.Scripts, logger *slog.Logger) *Running {
	return &Running{
		scripts: scripts, logger: logger,
		enter: make(chan entry), leave: make(chan entry), done: make(chan struct{}),
	}
}

// Run maintains the table until ctx ends.
func (r *Running) Run(ctx context.Context) error {
	defer close(r.done)
	ends := redisconn.NewListener(r.scripts, redisconn.ListenerOptions{
		Name: "task ends", Channels: []string{r.scripts.Keys().TasksEnded()}, Logger: r.logger,
	})
	var listening sync.WaitGroup
	listening.Go(func() { ends.Run(ctx) })
	defer listening.Wait()
	calls := map[string]map[uint64]context.CancelCauseFunc{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.enter:
			if calls[e.task] == nil {
				calls[e.task] = map[uint64]context.CancelCauseFunc{}
			}
			calls[e.task][e.id] = e.cancel
		case e := <-r.leave:
			delete(calls[e.task], e.id)
			if len(calls[e.task]) == 0 {
				delete(calls, e.task)
			}
		case e := <-ends.Events():
			if m, ok := e.(redisconn.Message); ok {
				for _, cancel := range calls[m.Payload] {
					cancel(errEnded)
				}
			}
		}
	}
}

// Watch returns a context that is cancelled when another process ends the task. The caller must call stop.
func (r *Running) Watch(ctx context.Context, task berth.TaskRef, id uint64) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := entry{task: task.String(), cancel: cancel, id: id}
	select {
	case r.enter <- e:
	case <-r.done:
	}
	return ctx, func() {
		cancel(nil)
		select {
		case r.leave <- e:
		case <-r.done:
		}
	}
}

// NotifyEnd notifies all workers that a task has ended.
func (r *Running) NotifyEnd(ctx context.Context, task berth.TaskRef) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := r.scripts.PublishTaskEnd(ctx, task.String()); err != nil {
		r.logger.Debug("end of task not published to the workers", "task", task, "error", err)
	}
}
