// Package temporal runs a Temporal server and its Web UI inside this process, for development and tests:
// SQLite in a file or in memory or PostgreSQL, one history shard, loopback only between the services.
package temporal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	server "go.temporal.io/server/temporal"

	"berth/internal/clienttls"
	"berth/internal/pause"
	"berth/internal/temporalconn"
	"berth/workflows"
)

// startTimeout bounds a start whose context has no deadline; a start takes well under a second.
const startTimeout = 30 * time.Second

// Options configure a server.
type Options struct {
	// FrontendAddr is host:port of the gRPC frontend; the port may not be 0.
	FrontendAddr string
	// UIAddr is host:port of the Web UI; if empty, it does not run.
	UIAddr string
	// DBFile is the SQLite file, created if it does not exist. If empty, everything is kept in memory.
	DBFile string
	// Postgres is the URL of a PostgreSQL database that is used in its place. Its schema is created if it has no tables.
	Postgres string
	// Namespace is created if it does not exist; empty means "default".
	Namespace string
	// Logger receives the server's log. Nil discards it.
	Logger *slog.Logger
	// TLS makes the frontend require TLS. Nil: plain text.
	TLS *TLS
	// DynamicConfig overrides the development settings, by Temporal's setting names.
	DynamicConfig map[string]any
}

// TLS are the PEM files for mutual TLS.
type TLS struct {
	// Cert and Key are the frontend's.
	Cert, Key string
	// Client is used by the server's own workers, the Web UI and Start. The frontend accepts clients whose certificates its
	// authorities have signed.
	Client clienttls.Files
}

// Server is a running Temporal server. Call Stop once.
type Server struct {
	server server.Server
	ui     *webUI
}

// SearchAttributes returns the search attributes that Start registers in the namespace.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	all := map[string]enumspb.IndexedValueType{}
	for _, name := range workflows.SearchAttributes() {
		all[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	return all
}

// Start starts the server and its Web UI and returns when the frontend serves the namespace and the UI accepts
// connections. Both addresses must be free: the library of the UI exits the process if its address is in use.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	temporalconn.IdentifyBinary() // before the server starts workers of its own
	cfg, hosts, release, err := serverConfig(o)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := prepareDatabase(cfg, o); err != nil {
		return nil, err
	}
	srv, err := newServer(cfg, hosts, o)
	if err != nil {
		return nil, err
	}
	if err := srv.Start(); err != nil {
		return nil, fmt.Errorf("start temporal: %w", err)
	}
	s := &Server{server: srv}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := awaitNamespace(ctx, cfg.PublicClient.HostPort, o); err != nil {
		return nil, err
	}
	if o.UIAddr != "" {
		if s.ui, err = startUI(ctx, cfg.PublicClient.HostPort, o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Stop stops the UI, then the server. The database file is complete afterwards.
func (s *Server) Stop() error {
	if s.ui != nil {
		s.ui.stop()
	}
	if err := s.server.Stop(); err != nil {
		return fmt.Errorf("stop temporal: %w", err)
	}
	return nil
}

func newServer(cfg *config.Config, hosts map[primitives.ServiceName]static.Hosts, o Options) (server.Server, error) {
	logger := newLogger(o.Logger)
	authorizer, err := authorization.GetAuthorizerFromConfig(&cfg.Global.Authorization)
	if err != nil {
		return nil, fmt.Errorf("create temporal authorizer: %w", err)
	}
	claims, err := authorization.GetClaimMapperFromConfig(&cfg.Global.Authorization, logger)
	if err != nil {
		return nil, fmt.Errorf("create temporal claim mapper: %w", err)
	}
	srv, err := server.NewServer(
		server.WithConfig(cfg),
		server.ForServices(server.DefaultServices),
		server.WithStaticHosts(hosts),
		server.WithLogger(logger),
		server.WithAuthorizer(authorizer),
		server.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		server.WithDynamicConfigClient(dynamicConfig(o.DynamicConfig)),
	)
	if err != nil {
		return nil, fmt.Errorf("create temporal server: %w", err)
	}
	return srv, nil
}

// awaitNamespace waits until the frontend serves the namespace, and adds search attributes that an older database file
// does not have.
func awaitNamespace(ctx context.Context, addr string, o Options) error {
	options := temporalconn.Options{Addr: addr, Namespace: o.Namespace, Logger: o.Logger}
	if o.TLS != nil {
		options.TLS = o.TLS.Client
	}
	c, err := temporalconn.Open(options)
	if err != nil {
		return err
	}
	defer c.Close()

	var known *operatorservice.ListSearchAttributesResponse
	err = pause.Until(ctx, startTimeout, 10*time.Millisecond, func(ctx context.Context) (err error) {
		known, err = c.OperatorService().ListSearchAttributes(ctx,
			&operatorservice.ListSearchAttributesRequest{Namespace: o.Namespace})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for temporal: %w", err)
	}
	missing := SearchAttributes()
	for name := range known.GetCustomAttributes() {
		delete(missing, name)
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: o.Namespace, SearchAttributes: missing,
	})
	if err != nil {
		return fmt.Errorf("add search attributes: %w", err)
	}
	return nil
}
