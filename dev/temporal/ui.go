package temporal

import (
	"context"
	"fmt"
	"net"

	ui "github.com/temporalio/ui-server/v2/server"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"

	"berth/dev/port"
)

// webUI is Temporal's own Web UI.
type webUI struct {
	server *ui.Server
	ended  chan struct{}
}

func startUI(ctx context.Context, frontend string, o Options) (*webUI, error) {
	at, err := net.ResolveTCPAddr("tcp", o.UIAddr)
	if err != nil {
		return nil, fmt.Errorf("temporal web ui address: %w", err)
	}
	var tls config.TLS
	if o.TLS != nil {
		c := o.TLS.Client
		tls = config.TLS{
			CaFile: c.CA, CertFile: c.Cert, KeyFile: c.Key, ServerName: c.ServerName, EnableHostVerification: true,
		}
	}
	w := &webUI{
		server: ui.NewServer(server_options.WithConfigProvider(&config.Config{
			TemporalGRPCAddress: frontend,
			Host:                bindIP(at),
			Port:                at.Port,
			EnableUI:            true,
			DefaultNamespace:    o.Namespace,
			TLS:                 tls,
			DisableNewsFetch:    true,
			HideLogs:            true,
			// Plain HTTP on loopback: a browser would drop a cookie marked secure.
			CORS: config.CORS{CookieInsecure: true},
		})),
		ended: make(chan struct{}),
	}
	go func() {
		defer close(w.ended)
		_ = w.server.Start() // returns nil at Stop and ends the process otherwise
	}()
	if err := port.AwaitOpen(ctx, net.JoinHostPort(dialIP(at), fmt.Sprint(at.Port))); err != nil {
		w.stop()
		return nil, fmt.Errorf("wait for temporal's web ui: %w", err)
	}
	return w, nil
}

func (w *webUI) stop() {
	w.server.Stop()
	<-w.ended
}
