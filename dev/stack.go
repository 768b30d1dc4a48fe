package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// part is one of the things that run in this process.
type part struct {
	name string
	// start returns when the part serves, and what stops it: within the context's time, once.
	start func(ctx context.Context) (stop func(ctx context.Context) error, err error)
}

// serve makes a part of a function that blocks until its context ends. ready returns when it serves; nil
// means at once.
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
		return errors.New("no reason given")
	}
	return err
}

// stack is what runs, in starting order.
type stack struct {
	parts  []part
	stops  []func(context.Context) error
	logger *slog.Logger
}

// start brings the parts up one after the other; when one fails or ctx ends, those that run are stopped again.
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

// stop ends the parts in the reverse order: first those that take work, last those that keep it. A part that
// outlives the common time is left behind and named in the error.
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
