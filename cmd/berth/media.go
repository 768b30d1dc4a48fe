package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"berth"
	"berth/internal/node"
	"berth/internal/secret"
	"berth/internal/unit"
)

// mediaCommand implements the contract in docs/units.md.
type mediaCommand struct {
	agentServer `embed:""`

	ID       string   `help:"Register with this id. A process that registers with it later replaces this one." name:"id" env:"BERTH_UNIT_ID" required:""`
	Slots    int      `help:"Run at most this many conferences." default:"50"`
	Services []string `help:"Services that run on the unit, for a capability that requires them (PUT /v1/config/services)." env:"BERTH_UNIT_SERVICES"`
	Zone     string   `help:"Zone of the unit. Conferences with a zone run only on units of that zone."`
	Hostname string   `help:"Host of the unit. Default: the machine's name."`
	Leave    bool     `help:"Withdraw on stop, so that the conferences are recovered elsewhere immediately. Otherwise a restart within the detection time keeps them."`

	Check   time.Duration `help:"Check the media server at this interval." default:"300ms"`
	Silence time.Duration `help:"Give up the conferences after the media server was unreachable for this time." default:"2s"`
	Fence   time.Duration `help:"End the conferences here after the API accepted no heartbeat for this time, also when the API itself is down. 0: continue them." default:"0s"`

	Driver string `help:"Kind of media server: ${enum}." enum:"livekit,sim" required:""`

	LivekitURL        secret.Address `help:"livekit: its URL, for instance http://127.0.0.1:7880." name:"livekit-url" env:"LIVEKIT_URL"`
	LivekitKey        string         `help:"livekit: API key." name:"livekit-key" env:"LIVEKIT_API_KEY"`
	LivekitSecret     secret.Text    `help:"livekit: the key's secret." name:"livekit-secret" env:"LIVEKIT_API_SECRET"`
	LivekitSecretFile string         `help:"livekit: file with the key's secret, read at the start." name:"livekit-secret-file" env:"LIVEKIT_API_SECRET_FILE"`

	ClientURL secret.Address `help:"livekit: its ws or wss URL for participants, which they reach through the API's proxy. Default: --livekit-url." name:"client-url" env:"LIVEKIT_CLIENT_URL"`
	Webhooks  string         `help:"livekit: accept the server's webhook events on this address, so that joins and leaves are reported immediately." placeholder:"HOST:PORT" env:"LIVEKIT_WEBHOOKS"`
	Dedicated bool           `help:"livekit: remove rooms named like a number that no unit has created."`

	SimFault   unit.Fault    `help:"sim: start with this fault: unresponsive, half-dead, refuse or slow." name:"sim-fault" enum:",unresponsive,half-dead,refuse,slow" default:""`
	SimDelay   time.Duration `help:"sim: run each command for this time." name:"sim-delay"`
	SimControl string        `help:"sim: serve an HTTP API for faults on this address." name:"sim-control" placeholder:"HOST:PORT"`

	agentLog `embed:""`
}

// Run runs the agent until the context ends.
func (c *mediaCommand) Run(ctx context.Context, logger *slog.Logger) error {
	switch {
	case c.Slots < 1:
		return errors.New("--slots must be 1 or more")
	case c.Check <= 0 || c.Silence < 2*c.Check:
		return errors.New("--check must be above 0, and --silence at least twice as long")
	case c.Fence != 0 && c.Fence < minFence:
		return fmt.Errorf("--fence must be 0 or at least %s, which is longer than berth takes to detect the loss of a unit", minFence)
	}
	api, err := c.client()
	if err != nil {
		return err
	}
	own, err := node.NewIncarnation()
	if err != nil {
		return err
	}
	c.Hostname = cmp.Or(c.Hostname, own.Host)
	driver, end, err := c.driver(ctx, logger, own)
	if err != nil {
		return err
	}
	defer end()
	spec := berth.NodeSpec{
		ID: c.ID, Hostname: c.Hostname, Zone: c.Zone, Capabilities: []string{berth.CapabilityConference}, Services: c.Services, MaxConcurrentJobs: c.Slots,
	}
	var changes <-chan string
	if livekit, ok := driver.(*unit.LiveKit); ok {
		spec.ClientURL, spec.KeyID = livekit.ClientURL(), c.LivekitKey
		if c.ClientURL != "" {
			spec.ClientURL = string(c.ClientURL)
		}
		if c.Webhooks != "" {
			var handler http.Handler
			handler, changes = livekit.Webhooks()
			addr, stop, err := serve(ctx, c.Webhooks, handler)
			if err != nil {
				return fmt.Errorf("--webhooks: %w", err)
			}
			defer stop()
			logger.Info("accepting webhook events of the media server", "addr", addr)
		}
	}
	tc, stop, err := c.connect(ctx, "media", api, logger)
	if err != nil {
		return err
	}
	defer stop()
	return unit.Run(ctx, unit.Options{
		Spec: spec, API: api, Temporal: tc, Driver: driver, WithdrawOnStop: c.Leave, Check: c.Check, UnreachableAfter: c.Silence,
		FenceAfter: c.Fence, Dedicated: c.Dedicated, Changes: changes, Logger: logger,
	})
}

// minFence exceeds the default time after which a media unit is declared dead.
const minFence = 5 * time.Second

// serve serves a handler until stop is called.
func serve(ctx context.Context, address string, handler http.Handler) (addr string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // returns when closed
	return l.Addr().String(), func() { _ = server.Close() }, nil
}

func (c *mediaCommand) driver(ctx context.Context, logger *slog.Logger, own berth.Incarnation) (unit.Driver, func(), error) {
	if c.Driver == "livekit" {
		from := secret.New("LIVEKIT_API_SECRET", string(c.LivekitSecret), c.LivekitSecretFile)
		if err := from.Validate(); err != nil {
			return nil, nil, err
		}
		text, err := from.Read()
		if err != nil {
			return nil, nil, err
		}
		d, err := unit.NewLiveKit(unit.LiveKitOptions{URL: string(c.LivekitURL), Key: c.LivekitKey, Secret: text, Unit: c.ID})
		if err != nil {
			return nil, nil, fmt.Errorf("--livekit-url, --livekit-key, --livekit-secret: %w", err)
		}
		return d, d.Close, nil
	}
	if c.SimDelay < 0 {
		return nil, nil, errors.New("--sim-delay must not be negative")
	}
	d := unit.NewSim(unit.SimOptions{Incarnation: own, Delay: c.SimDelay})
	d.Fail(c.SimFault)
	if c.SimControl == "" {
		return d, func() {}, nil
	}
	addr, stop, err := serve(ctx, c.SimControl, d.Control())
	if err != nil {
		return nil, nil, fmt.Errorf("--sim-control: %w", err)
	}
	logger.Info("simulated media server accepts faults", "addr", addr)
	return d, stop, nil
}
