package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/dev/child"
	"berth/internal/freeport"
	"berth/internal/pause"
	"berth/internal/unit"
)

// liveKitPause is the time before a killed server starts again: long enough for its conferences to move to the other one.
const liveKitPause = 5 * time.Second

// liveKit is a LiveKit server of a demo unit.
type liveKit struct {
	unit, key, secret string
	ports             []int // HTTP, WebRTC over TCP, WebRTC over UDP
	config            string
}

// liveKitServers chooses ports and keys for the servers of the demo units, and writes their configurations and the file with their keys for
// the API. It returns none when no LiveKit server is installed or when the keys of other units are set.
func liveKitServers(o *options) (servers []*liveKit, err error) {
	if o.liveKit = findLiveKit(o.LiveKit); o.liveKit == "" || !o.runs(partFleet) || o.Signalling.Keys != "" {
		return nil, nil
	}
	dir, err := filepath.Abs(filepath.Join(o.DataDir, "livekit"))
	if err != nil {
		return nil, fmt.Errorf("directory of LiveKit: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of LiveKit: %w", err)
	}
	var keys strings.Builder
	for _, spec := range demoUnits() {
		ports, err := freeport.Find(3)
		if err != nil {
			return nil, err
		}
		s := &liveKit{
			unit: spec.ID, key: "key-" + spec.ID, secret: rand.Text() + rand.Text(), ports: ports, config: filepath.Join(dir, spec.ID+".yaml"),
		}
		if err := os.WriteFile(s.config, []byte(s.configuration()), 0o600); err != nil {
			return nil, fmt.Errorf("configuration of LiveKit: %w", err)
		}
		fmt.Fprintf(&keys, "%s: %s\n", s.key, s.secret)
		servers = append(servers, s)
	}
	o.Signalling.Keys, o.Signalling.Hosts = filepath.Join(dir, "keys"), append(o.Signalling.Hosts, "127.0.0.1")
	if err := os.WriteFile(o.Signalling.Keys, []byte(keys.String()), 0o600); err != nil {
		return nil, fmt.Errorf("keys of LiveKit: %w", err)
	}
	return servers, nil
}

// findLiveKit returns the path of the LiveKit server; empty if there is none.
func findLiveKit(setting string) string {
	for _, name := range []string{setting, "livekit-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func (s *liveKit) url() string { return fmt.Sprintf("http://127.0.0.1:%d", s.ports[0]) }

// configuration is LiveKit's. Participants of a killed server must not re-create its rooms.
func (s *liveKit) configuration() string {
	return fmt.Sprintf("port: %d\nbind_addresses: [127.0.0.1]\nkeys: {%s: %s}\nlogging: {level: warn}\nroom: {auto_create: false}\n"+
		"rtc: {tcp_port: %d, udp_port: %d, node_ip: %s, use_external_ip: false, stun_servers: [\"127.0.0.1:1\"]}\n",
		s.ports[0], s.key, s.secret, s.ports[1], s.ports[2], ownAddress())
}

// ownAddress returns an address of this machine that browsers use for media: they ignore the loopback interface.
func ownAddress() string {
	all, _ := net.InterfaceAddrs() // without one, the loopback interface is used
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// run runs the server until ctx ends. A killed one is started again, without its rooms.
func (s *liveKit) run(ctx context.Context, binary string, logger *slog.Logger) (err error) {
	log, err := os.OpenFile(strings.TrimSuffix(s.config, ".yaml")+".log", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("log of LiveKit: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	ended := make(chan struct{})
	go child.Supervise(ctx, child.Process{
		Name: "LiveKit server of " + s.unit, Binary: binary, Args: []string{"--config", s.config}, StopWithin: fleetDrain,
		RestartAfter: liveKitPause, Log: log, Logger: logger,
	}, ended, func(error) {})
	<-ended
	return nil
}

// await returns when the server responds.
func (s *liveKit) await(ctx context.Context) error {
	return pause.Until(ctx, startTimeout, 20*time.Millisecond, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(), http.NoBody)
		if err != nil {
			return fmt.Errorf("request to LiveKit: %w", err)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		return err
	})
}

// startLiveKit runs the servers in the group, and returns the drivers of their units when they respond.
func startLiveKit(ctx context.Context, g *errgroup.Group, o *options, servers []*liveKit, logger *slog.Logger) (map[string]*unit.LiveKit, error) {
	drivers := map[string]*unit.LiveKit{}
	for _, s := range servers {
		g.Go(func() error { return s.run(ctx, o.liveKit, logger) })
		if err := s.await(ctx); err != nil {
			return nil, fmt.Errorf("LiveKit server of %s (log beside %s): %w", s.unit, s.config, err)
		}
		d, err := unit.NewLiveKit(unit.LiveKitOptions{URL: s.url(), Key: s.key, Secret: s.secret, Unit: s.unit})
		if err != nil {
			return nil, err
		}
		drivers[s.unit] = d
	}
	return drivers, nil
}
