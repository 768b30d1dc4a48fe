package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"berth/internal/health"
	"berth/internal/pause"
	"berth/internal/setting"
	"berth/internal/telemetry"
)

const (
	httpSetting    = "BERTH_HTTP_ADDR"
	metricsSetting = "BERTH_METRICS_ADDR"
	// listenTries is how often an address is tried that is in use although nothing accepts connections there, as while another process
	// checks it. listenPause is the time between two of them, and reportTimeout bounds the wait for an answer.
	listenTries   = 5
	listenPause   = 100 * time.Millisecond
	reportTimeout = 2 * time.Second
	// reportBytes is how much of an answer is read.
	reportBytes = 64 << 10
)

// addresses checks that a process can serve its addresses, or that berth serves them already.
func (d *doctor) addresses(ctx context.Context) {
	api, metrics := d.cfg.API.Addr, d.cfg.Telemetry.MetricsAddr
	if setting.HostPort(api) != nil || metrics != telemetry.Off && setting.HostPort(metrics) != nil {
		return // the settings are a finding
	}
	free := d.address(ctx, Error, httpSetting, api, "an API process does not start")
	if metrics == telemetry.Off {
		return
	}
	if d.address(ctx, Warning, metricsSetting, metrics, "a process serves no metrics and no health") && free && collide(ctx, api, metrics) {
		d.add(Error, "addresses", "set another address", "%s: %s is the address of %s: an API process does not start", metricsSetting, metrics, httpSetting)
	}
}

// address adds a finding about one address, and reports whether it is free. level is that of an address that cannot be served.
func (d *doctor) address(ctx context.Context, level Level, name, addr, follows string) (free bool) {
	const subject = "addresses"
	var failed *setting.ListenError
	for n := 1; ; n++ {
		l, err := setting.Listen(ctx, name, addr)
		if err == nil {
			_ = l.Close() // nothing has connected
			d.add(OK, subject, "", "%s: %s is free", name, addr)
			return true
		}
		if !errors.As(err, &failed) || !failed.InUse() {
			break
		}
		report, err := reportAt(ctx, addr)
		if err == nil {
			d.add(OK, subject, "", "%s: berth %s runs at %s, with the status %s; another process needs an address of its own", name, report.Version, addr, report.Status)
			return false
		}
		if _, silent := errors.AsType[*net.OpError](err); !silent || n == listenTries || !pause.For(ctx, listenPause) {
			break
		}
	}
	if failed.InUse() && addr == telemetry.DefaultAddr && name == metricsSetting {
		d.add(OK, subject, "", "%s: %s is in use by another program; a process takes a free port", name, addr)
		return false
	}
	by := ""
	if failed.InUse() {
		by = " by a program that is not berth"
	}
	d.add(level, subject, failed.Advice, "%s: listen on %s: %s%s: %s", name, addr, failed.Err, by, follows)
	return false
}

// reportAt returns what berth reports at an address where it may run.
func reportAt(ctx context.Context, addr string) (r health.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return r, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return r, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
	res, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer func() { _ = res.Body.Close() }() // it was read, or is not berth's
	body, err := io.ReadAll(io.LimitReader(res.Body, reportBytes))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, err
	}
	if r.Status == "" || r.Version == "" || r.Dependencies == nil || res.StatusCode != r.StatusCode() {
		return r, fmt.Errorf("%s is not berth's report", req.URL.Path)
	}
	return r, nil
}

// collide reports whether two addresses that are free cannot be served by one process.
func collide(ctx context.Context, a, b string) bool {
	first, err := setting.Listen(ctx, "", a)
	if err != nil {
		return false // taken meanwhile
	}
	defer func() { _ = first.Close() }() // nothing has connected
	second, err := setting.Listen(ctx, "", b)
	if err == nil {
		return second.Close() != nil
	}
	var failed *setting.ListenError
	return errors.As(err, &failed) && failed.InUse()
}
