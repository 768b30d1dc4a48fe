package activities

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"berth/internal/redisconn"
	"berth/lua"
)

// Running knows the calls of this process by task, so that one can be stopped the moment its task is cancelled.
// The news is a hint: whoever misses it is refused at its next append, or hears it with its next heartbeat.
// One goroutine owns the table; Run is that goroutine.
type Running struct {
	scripts *lua.Scripts
	logger  *slog.Logger
	enter   chan entry
	leave   chan entry
	done    chan struct{}
}

type entry struct {
	taskID string
	cancel context.CancelCauseFunc
	id     uint64
}

// NewRunning makes a table that listens on the scripts' Redis once Run is called.
func NewRunning(scripts *lua.Scripts, logger *slog.Logger) *Running {
	return &Running{
		scripts: scripts, logger: logger,
		enter: make(chan entry), leave: make(chan entry), done: make(chan struct{}),
	}
}

// Run owns the table until ctx ends.
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
			if calls[e.taskID] == nil {
				calls[e.taskID] = map[uint64]context.CancelCauseFunc{}
			}
			calls[e.taskID][e.id] = e.cancel
		case e := <-r.leave:
			delete(calls[e.taskID], e.id)
			if len(calls[e.taskID]) == 0 {
				delete(calls, e.taskID)
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

// Watch returns a context that is cancelled when the task ends elsewhere. stop must be called.
func (r *Running) Watch(ctx context.Context, taskID string, id uint64) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := entry{taskID: taskID, cancel: cancel, id: id}
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

// Tell lets every worker hear that a task is over.
func (r *Running) Tell(ctx context.Context, taskID string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := r.scripts.PublishTaskEnd(ctx, taskID); err != nil {
		r.logger.Debug("tell workers that a task is over", "task", taskID, "error", err)
	}
}
