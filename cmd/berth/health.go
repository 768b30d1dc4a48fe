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
	target := c.URL
	if target == "" {
		host, port, err := net.SplitHostPort(c.MetricsAddr)
		if err != nil {
			return fmt.Errorf("--metrics-addr (BERTH_METRICS_ADDR): %w", err)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		target = "http://" + net.JoinHostPort(host, port) + "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return errors.Unwrap(err) // without the advice for commands that call the API
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 4096)) // only for the message
		return fmt.Errorf("health check: %s: %s", res.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
