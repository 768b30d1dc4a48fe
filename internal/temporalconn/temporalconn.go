// Package temporalconn opens the Temporal client of every process: TLS, credentials, encryption of payloads, telemetry.
package temporalconn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"berth/internal/clienttls"
	"berth/internal/payload"
	"berth/internal/secret"
	"berth/internal/setting"
	"berth/internal/telemetry"
)

// Options configure a client. Only the address is required.
type Options struct {
	// Addr is host:port of the Temporal frontend.
	Addr string
	// Namespace is "default" if empty.
	Namespace string
	TLS       clienttls.Files
	// APIKey is sent with every call. APIKeyFile names a file with the key instead: it is read for every call, so that a new
	// key is used without a restart.
	APIKey, APIKeyFile string
	// PayloadKeys encrypt what Temporal stores.
	PayloadKeys payload.Keys
	// Logger receives the SDK's messages. Nil discards them.
	Logger *slog.Logger
}

// reconnect makes a process that lost Temporal use it again within two seconds after it is available. The SDK's own delay grows
// to ten seconds.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
	MinConnectTimeout: 2 * time.Second,
}

// IdentifyBinary makes workers of this process report the version of its source as that of the binary. By default, the first worker
// computes a hash of the file, which takes half a second of processor time for 200 MB. Open calls it.
func IdentifyBinary() {
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		worker.SetBinaryChecksum(build.Main.Version)
	}
}

// Open returns a client that connects at its first call. Files of certificates and keys must exist.
func Open(o Options) (client.Client, error) {
	IdentifyBinary()
	tls, err := o.TLS.Config("BERTH_TEMPORAL_TLS")
	if err != nil {
		return nil, err
	}
	credentials, err := o.credentials()
	if err != nil {
		return nil, err
	}
	if err := setting.HostPort(o.Addr); err != nil { // the SDK's error has the address, which may contain a password
		return nil, fmt.Errorf("BERTH_TEMPORAL_ADDR: invalid address: %w", err)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	c, err := client.NewLazyClient(client.Options{
		HostPort: o.Addr, Namespace: o.Namespace, Logger: telemetry.Temporal(o.Logger), Credentials: credentials,
		ConnectionOptions: client.ConnectionOptions{
			TLS: tls,
			// Compression costs more than it saves on a local network, and encrypted payloads do not become smaller.
			GrpcCompression: &client.GrpcCompressionNone{},
			DialOptions:     []grpc.DialOption{grpc.WithConnectParams(reconnect)},
		},
		DataConverter:    payload.NewDataConverter(o.PayloadKeys),
		FailureConverter: payload.NewFailureConverter(o.PayloadKeys),
		Interceptors:     telemetry.Interceptors(), MetricsHandler: metricsHandler(),
	})
	if err != nil {
		return nil, fmt.Errorf("temporal client: %w", err)
	}
	return c, nil
}

func (o Options) apiKey() secret.Secret {
	return secret.New("BERTH_TEMPORAL_API_KEY", o.APIKey, o.APIKeyFile)
}

// credentials returns nil without an API key. With one, the SDK uses TLS even if no other setting requires it.
func (o Options) credentials() (client.Credentials, error) {
	key := o.apiKey()
	if err := key.Validate(); err != nil {
		return nil, err
	}
	switch {
	case key.FromFile():
		return client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) { return key.Read() }), nil
	case key.IsSet():
		text, err := key.Read()
		return client.NewAPIKeyStaticCredentials(text), err
	default:
		return nil, nil
	}
}
