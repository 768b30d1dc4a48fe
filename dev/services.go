package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"time"

	"berth"
	"berth/dev/port"
	"berth/internal/app"
	"berth/internal/devserver"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/internal/pause"
	"berth/internal/secret"
)

// drain bounds the time that model calls get to finish when a worker stops, because the whole server stops within
// stopTimeout. Other calls continue after the next start.
const drain = 3 * time.Second

// guestName and poorName are the users with and without credits whose tokens are printed at the start, and guestTTL is the
// lifetime of these.
const (
	guestName    = "alice"
	guestCredits = 100 * berth.Credit
	poorName     = "bob"
	guestTTL     = 24 * time.Hour
)

// version is set by the linker at release.
var version = "dev"

// services returns berth's own parts in starting order. The error of a part that ends unexpectedly is sent to failed.
func services(o *options, logger *slog.Logger, probe *health.Probe, failed chan<- error) []part {
	return []part{
		serve(partModel, failed,
			func(ctx context.Context) error { return o.ModelServer.Run(ctx, logger) },
			func(ctx context.Context) error { return port.AwaitOpen(ctx, o.ModelServer.Addr) }),
		serve(partWorker, failed,
			func(ctx context.Context) error {
				cfg := o.Config
				cfg.Rollout.BuildID = cfg.Rollout.Build(version)
				return app.RunWorker(ctx, cfg, logger.With("part", partWorker), probe)
			},
			nil),
		serve(partAPI, failed,
			func(ctx context.Context) error {
				return app.RunAPI(ctx, o.Config, logger.With("part", partAPI), probe)
			},
			func(ctx context.Context) error { return awaitReady(ctx, "http://"+o.API.Addr+"/readyz") }),
		serve(partFleet, failed,
			func(ctx context.Context) error {
				return runDemoFleet(ctx, o, logger.With("part", partFleet))
			},
			nil),
	}
}

// migrate updates the database schema and adds the guest's credits before workers and the API open the database: concurrent migrations of a new file
// would wait for each other's locks.
func (o *options) migrate(ctx context.Context, logger *slog.Logger) error {
	if !o.runs(partWorker) && !o.runs(partAPI) {
		return nil
	}
	l, err := ledger.OpenSource(ctx, o.Database.Source(), logger)
	if err != nil {
		return err
	}
	_, _, _, err = l.AddCredits(ctx, ledger.Grant{
		UserID: guestName, Amount: guestCredits, Reason: "credits of the development server", Key: "dev",
	})
	return errors.Join(err, l.Close())
}

// awaitReady waits until the API reports that its dependencies are available.
func awaitReady(ctx context.Context, url string) error {
	return pause.Until(ctx, startTimeout, 10*time.Millisecond, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("readiness request: %w", err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s returned status %d", url, res.StatusCode)
		}
		return nil
	})
}

// secret sets the secret of tokens from the settings or the data directory. The first start writes a new secret there.
func (o *options) secret() error {
	file := devserver.SecretFile(o.DataDir)
	if err := o.ReadSecretFile(file); err != nil || o.Identity.HasSecret() {
		return err
	}
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	o.Identity.Secrets = secret.Text(hex.EncodeToString(b))
	if err := os.WriteFile(file, []byte(string(o.Identity.Secrets)+"\n"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write secret: %w", err)
	}
	return nil
}

// invite prints commands to try first, with a token that is valid for guestTTL.
func invite(out io.Writer, o *options) error {
	if !o.runs(partAPI) {
		return nil
	}
	token, err := identity.Issue(o.Identity.Secret(), identity.Grant{
		UserID: guestName, Scopes: identity.ScopeNames(), Nodes: []string{"*"}, TTL: guestTTL, Audience: o.Identity.Audience(),
	})
	if err != nil {
		return fmt.Errorf("issue token: %w", err)
	}
	poor, err := identity.Issue(o.Identity.Secret(), identity.Grant{
		UserID: poorName, Scopes: []string{identity.ScopeUser}, TTL: guestTTL, Audience: o.Identity.Audience(),
	})
	if err != nil {
		return fmt.Errorf("issue token: %w", err)
	}
	fleet, media := "", ""
	switch {
	case len(o.servers) > 0:
		media = fmt.Sprintf(`
Two LiveKit servers run the demo's conferences. Create one in the page's console under Conferences, take part, and invite
other tabs by link. Then kill the server that the page names, and watch:
  pkill -9 -f '%[1]s'   # or %[2]s.yaml
`, o.servers[0].config, o.servers[1].unit)
	case o.runs(partFleet) && o.liveKit == "":
		media = `
The demo's conferences run on simulated media units, because no LiveKit server was found: they cannot be joined.
Build one with scripts/livekit.sh, then start again.
`
	}
	if o.runs(partFleet) {
		fleet = `  echo "good morning, thank you for the water" | bin/berth turn --from en --to es
  bin/berth conference create --for 10m --watch
`
	}
	_, err = fmt.Fprintf(out, `
Open the page, signed in as %[3]s, who starts with %[8]s credits:
  http://%[1]s/#token=%[2]s
or as %[7]s, who starts with none; tasks without credits use the free models:
  http://%[1]s/#token=%[6]s

Or run in this directory:
  bin/berth task submit --template ticket_summary --var ticket="The printer in room 4 is on fire." --watch
%[5]s%[9]s
Or in any terminal:
  export BERTH_URL=http://%[1]s BERTH_TEMPORAL_ADDR=%[4]s BERTH_TOKEN=%[2]s
  curl -H "Authorization: Bearer $BERTH_TOKEN" -H 'Content-Type: application/json' $BERTH_URL/v1/tasks \
    -d '{"serviceId":"demo","template":"translate","variables":{"text":"Good morning","language":"German"}}'
`, o.API.Addr, token, guestName, o.Temporal.Addr, fleet, poor, poorName, guestCredits, media)
	if err == nil {
		_, err = fmt.Fprintln(out, "\nCtrl-C stops everything.")
	}
	return err
}
