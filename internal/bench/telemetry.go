package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// telemetry measures chains and dispatches with processes that export traces and metrics, and with processes that do not. The
// two alternate.
func telemetry(ctx context.Context, r *Run) error {
	const rounds = 3
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	collector := &http.Server{Handler: http.HandlerFunc(discard), ReadHeaderTimeout: time.Second}
	go func() { _ = collector.Serve(l) }() // returns when closed
	defer func() { _ = collector.Close() }()
	settings := map[bool][]string{
		false: {"OTEL_SDK_DISABLED=true"},
		true:  {"OTEL_SDK_DISABLED=false", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + l.Addr().String()},
	}
	chains, dispatches := map[bool]*run{false: {}, true: {}}, map[bool]latencies{}
	for round := range rounds {
		for _, on := range []bool{false, true} {
			r.step("round %d of %d, telemetry on: %t", round+1, rounds, on)
			c, d, err := r.observed(ctx, settings[on])
			if err != nil {
				return err
			}
			chains[on].add(c)
			dispatches[on] = append(dispatches[on], d...)
		}
	}
	const off = "the same without telemetry"
	r.add(Figure{Name: "chains of three model calls with every trace exported", Unit: "/s", Value: chains[true].rate()}.
		beside(off, chains[false].rate()).within(minRatio(0.95)))
	r.quantiles("dispatch of a job in a running turn with every trace exported", dispatches[true], off, dispatches[false], maxRatio(1.05))
	return nil
}

// observed runs chains and turns on a stack with the settings.
func (r *Run) observed(ctx context.Context, settings []string) (chains run, dispatches latencies, err error) {
	h, err := r.open(ctx, provider{tokens: 1}, settings...)
	if err != nil {
		return run{}, nil, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	one, err := h.chains(ctx)
	if err != nil {
		return run{}, nil, err
	}
	if chains, err = concurrently(ctx, r.times(80), parallel, one); err != nil {
		return run{}, nil, err
	}
	stop, err := h.node(ctx, benchNode("bench-node", 0, manySlots))
	if err != nil {
		return run{}, nil, err
	}
	defer stop()
	if err := h.session(ctx); err != nil {
		return run{}, nil, err
	}
	turns, err := measureTurns(ctx, r.times(12), func(name string) func(int) error { return h.turn(ctx, name) })
	return chains, turns.paced, err
}

// discard is a collector that accepts everything.
func discard(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // an exporter that disconnects retries
	w.WriteHeader(http.StatusOK)
}
