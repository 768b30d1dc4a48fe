package agent

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
	"berth/internal/unit"
)

// Media is the command of a media unit without the flags of its media server. It implements the contract in docs/units.md.
type Media struct {
	Connection `embed:""`

	ID       string   `help:"Register with this id. A process that registers with it later replaces this one." name:"id" env:"BERTH_UNIT_ID" required:""`
	Slots    int      `help:"Run at most this many conferences." default:"50"`
	Services []string `help:"Services that run on the unit, for a capability that requires them (PUT /v1/config/services)." env:"BERTH_UNIT_SERVICES"`
	Zone     string   `help:"Zone of the unit. Conferences with a zone run only on units of that zone."`
	Hostname string   `help:"Host of the unit. Default: the machine's name."`
	Leave    bool     `help:"Withdraw on stop, so that the conferences are recovered elsewhere immediately. Otherwise a restart within the detection time keeps them."`

	Check   time.Duration `help:"Check the media server at this interval." default:"300ms"`
	Silence time.Duration `help:"Give up the conferences after the media server was unreachable for this time." default:"2s"`
	Fence   time.Duration `help:"End the conferences here after the API accepted no heartbeat for this time, also when the API itself is down. 0: continue them." default:"0s"`

	Log `embed:""`
}

// MediaServer is what a unit keeps conferences on.
type MediaServer struct {
	unit.Driver
	// ClientURL and KeyID are what participants need, empty if they cannot join.
	ClientURL, KeyID string
	// Changes receives numbers of conferences whose participants have changed, nil if the server does not report them.
	Changes <-chan string
	// Dedicated removes rooms named like a number that no unit has created.
	Dedicated bool
	Close     func()
}

// Run runs the agent with the media server that open returns, until the context ends.
func (c *Media) Run(ctx context.Context, version string, logger *slog.Logger, open func(own berth.Incarnation) (MediaServer, error)) error {
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
	spec := berth.NodeSpec{
		ID: c.ID, Hostname: c.Hostname, Zone: c.Zone, Capabilities: []string{berth.CapabilityConference}, Services: c.Services, MaxConcurrentJobs: c.Slots,
	}
	server, err := open(own)
	if err != nil {
		return err
	}
	defer server.Close()
	spec.ClientURL, spec.KeyID = server.ClientURL, server.KeyID
	tc, stop, err := c.connect(ctx, "media", version, api, logger)
	if err != nil {
		return err
	}
	defer stop()
	return unit.Run(ctx, unit.Options{
		Spec: spec, API: api, Temporal: tc, Driver: server.Driver, WithdrawOnStop: c.Leave, Check: c.Check, UnreachableAfter: c.Silence,
		FenceAfter: c.Fence, Dedicated: server.Dedicated, Changes: server.Changes, Logger: logger,
	})
}

// minFence exceeds the default time after which a media unit is declared dead.
const minFence = 5 * time.Second

// Serve serves a handler until stop is called.
func Serve(ctx context.Context, address string, handler http.Handler) (addr string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // returns when closed
	return l.Addr().String(), func() { _ = server.Close() }, nil
}
