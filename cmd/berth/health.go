package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"berth/internal/agent"
	"berth/internal/secret"
	"berth/internal/setting"
	"berth/internal/telemetry"
)

// healthTimeout is shorter than that of any health check that runs the command.
const healthTimeout = 4 * time.Second

// healthCommand is the health check of containers, because images without an HTTP client are smaller.
type healthCommand struct {
	URL         string `arg:"" optional:"" help:"Check this URL. Default: /readyz at the metrics address."`
	MetricsAddr string `help:"Metrics address of the process to check, host:port." env:"BERTH_METRICS_ADDR" default:"127.0.0.1:9464"`
}

// Run returns an error unless the response is 200.
func (c *healthCommand) Run(ctx context.Context) error {
	target, name, err := c.target()
	if err != nil {
		return setting.Wrong(err)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		// Unwrapped, because main adds advice to errors of calls to the API.
		return fmt.Errorf("health check of %s: %w; check that the process runs and that %s is its address", target, errors.Unwrap(err), name)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 4096)) // only for the message
		return fmt.Errorf("health check of %s: %s: %s", target, res.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// target returns the URL to check, and the name of the setting it comes from.
func (c *healthCommand) target() (target, name string, err error) {
	if c.URL != "" {
		if !agent.ValidURL(c.URL) {
			return "", "", fmt.Errorf("invalid URL %s: it must start with http:// or https://, such as http://127.0.0.1:9464/readyz; "+
				"use --metrics-addr (BERTH_METRICS_ADDR) for host:port", secret.Address(c.URL))
		}
		return c.URL, "the URL", nil
	}
	name = "--metrics-addr (BERTH_METRICS_ADDR)"
	if c.MetricsAddr == telemetry.Off {
		return "", "", fmt.Errorf("%s is %s: the process serves no health; give the URL of /readyz at its HTTP address", name, telemetry.Off)
	}
	host, port, err := net.SplitHostPort(c.MetricsAddr)
	if err != nil {
		return "", "", fmt.Errorf("%s: invalid address %s: must be host:port", name, secret.Address(c.MetricsAddr))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz", name, nil
}
