package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"berth"
	"berth/internal/agent"
	"berth/internal/secret"
	"berth/internal/unit"
)

type mediaCommand struct {
	agent.Media `embed:""`

	LivekitURL        secret.Address `help:"URL of the LiveKit server, for instance http://127.0.0.1:7880." name:"livekit-url" env:"LIVEKIT_URL"`
	LivekitKey        string         `help:"API key of the LiveKit server." name:"livekit-key" env:"LIVEKIT_API_KEY"`
	LivekitSecret     secret.Text    `help:"Secret of the API key." name:"livekit-secret" env:"LIVEKIT_API_SECRET"`
	LivekitSecretFile string         `help:"File with the secret of the API key, read at the start." name:"livekit-secret-file" env:"LIVEKIT_API_SECRET_FILE"`

	ClientURL secret.Address `help:"ws or wss URL of the LiveKit server for participants, which they reach through the API's proxy. Default: --livekit-url." name:"client-url" env:"LIVEKIT_CLIENT_URL"`
	Webhooks  string         `help:"Accept the server's webhook events on this address, so that joins and leaves are reported immediately." placeholder:"HOST:PORT" env:"LIVEKIT_WEBHOOKS"`
	Dedicated bool           `help:"Remove rooms named like a number that no unit has created."`
}

// Run runs the agent until the context ends.
func (c *mediaCommand) Run(ctx context.Context, logger *slog.Logger) error {
	return c.Media.Run(ctx, version, logger, func(berth.Incarnation) (agent.MediaServer, error) { return c.open(ctx, logger) })
}

func (c *mediaCommand) open(ctx context.Context, logger *slog.Logger) (agent.MediaServer, error) {
	from := secret.New("LIVEKIT_API_SECRET", string(c.LivekitSecret), c.LivekitSecretFile)
	if err := from.Validate(); err != nil {
		return agent.MediaServer{}, err
	}
	text, err := from.Read()
	if err != nil {
		return agent.MediaServer{}, err
	}
	d, err := unit.NewLiveKit(unit.LiveKitOptions{URL: string(c.LivekitURL), Key: c.LivekitKey, Secret: text, Unit: c.ID})
	if err != nil {
		return agent.MediaServer{}, fmt.Errorf("--livekit-url, --livekit-key, --livekit-secret: %w", err)
	}
	s := agent.MediaServer{
		Driver: d, ClientURL: cmp.Or(string(c.ClientURL), d.ClientURL()), KeyID: c.LivekitKey, Dedicated: c.Dedicated, Close: d.Close,
	}
	if c.Webhooks == "" {
		return s, nil
	}
	var handler http.Handler
	handler, s.Changes = d.Webhooks()
	addr, stop, err := agent.Serve(ctx, c.Webhooks, handler)
	if err != nil {
		d.Close()
		return agent.MediaServer{}, fmt.Errorf("--webhooks: %w", err)
	}
	logger.Info("accepting webhook events of the media server", "addr", addr)
	s.Close = func() { stop(); d.Close() }
	return s, nil
}
