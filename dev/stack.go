package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// part is a server that runs in this process.
type part struct {
	name string
	// start returns when the part serves. stop must be called once; it returns at the latest when its context ends.
	start func(ctx context.Context) (stop func(ctx context.Context) error, err error)
}

// serve returns a part that runs a function which blocks until its context ends. ready returns when the part serves; nil
// means immediately. An unexpected end is sent to failed.
func serve(name string, failed chan<- error, run, ready func(ctx context.Context) error) part {
	return part{name: name, start: func(ctx context.Context) (func(context.Context) error, error) {
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan error, 1)
		go func() {
			err := run(running)
			if running.Err() == nil {
				select {
				case failed <- fmt.Errorf("%s ended: %w", name, orUnknown(err)):
				default:
				}
			}
			ended <- err
		}()
		stop := func(ctx context.Context) error {
			cancel()
			select {
			case err := <-ended:
				if errors.Is(err, context.Canceled) {
					return nil
				}
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if ready == nil {
			return stop, nil
		}
		waiting, done := context.WithCancelCause(ctx)
		defer done(nil)
		answered := make(chan error, 1)
		go func() { answered <- ready(waiting) }()
		select {
		case err := <-answered:
			if err != nil {
				return nil, errors.Join(err, stop(ctx))
			}
			return stop, nil
		case err := <-ended:
			cancel()
			return nil, orUnknown(err)
		}
	}}
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("ended without an error")
	}
	return err
}

// stack holds the running parts in starting order.
type stack struct {
	parts  []part
	stops  []func(context.Context) error
	logger *slog.Logger
}

// start starts the parts one after the other. If one fails or ctx ends, the running parts are stopped.
func start(ctx context.Context, parts []part, logger *slog.Logger) (*stack, error) {
	s := &stack{logger: logger}
	for _, p := range parts {
		began := time.Now()
		stop, err := p.start(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", p.name, err), s.stop(stopTimeout))
		}
		s.parts = append(s.parts, p)
		s.stops = append(s.stops, stop)
		logger.Debug("started", "part", p.name, "took", time.Since(began))
	}
	return s, nil
}

// stop stops the parts in reverse order, within one common time limit. The error names the parts that did not stop in
// time.
func (s *stack) stop(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var errs []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		began := time.Now()
		if err := s.stops[i](ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.parts[i].name, err))
		}
		s.logger.Debug("stopped", "part", s.parts[i].name, "took", time.Since(began))
	}
	return errors.Join(errs...)
}
