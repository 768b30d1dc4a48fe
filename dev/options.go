package main

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/app"
	"berth/internal/config"
)

// options are berth's own settings and those of what surrounds it here.
type options struct {
	config.Config   `embed:""`
	app.ModelServer `embed:"" group:"Development server"`

	TemporalUIAddr string   `help:"Address of Temporal's Web UI." name:"temporal-ui-addr" env:"BERTH_TEMPORAL_UI_ADDR" default:"127.0.0.1:8233" group:"Development server"`
	DataDir        string   `help:"Folder of all data; one server at a time." name:"data-dir" env:"BERTH_DATA_DIR" default:"./.berth" group:"Development server"`
	Demo           string   `help:"Simulated nodes and media units, so that turns and conferences work at once: ${enum}." name:"demo" env:"BERTH_DEMO" enum:"on,off" default:"on" group:"Development server"`
	RunEvents      int      `help:"Events after which Temporal has a long workflow go on in a new run; 0 is Temporal's own limit." name:"temporal-run-events" env:"BERTH_TEMPORAL_RUN_EVENTS" default:"0" group:"Development server"`
	Only           []string `help:"Run these parts only: redis, temporal, ui, model, worker, api, fleet." name:"only" env:"BERTH_DEV_ONLY" group:"Development server"`
}

// The parts, in starting order.
const (
	partRedis    = "redis"
	partTemporal = "temporal"
	partUI       = "ui"
	partModel    = "model"
	partWorker   = "worker"
	partAPI      = "api"
	partFleet    = "fleet"
)

func partNames() []string {
	return []string{partRedis, partTemporal, partUI, partModel, partWorker, partAPI, partFleet}
}

// address is one that somebody here will listen on.
type address struct {
	part, env string
	addr      *string
}

func (o *options) addresses() []address {
	all := []address{
		{partRedis, "BERTH_REDIS_ADDR", &o.Redis.Addr},
		{partTemporal, "BERTH_TEMPORAL_ADDR", &o.Temporal.Addr},
		{partUI, "BERTH_TEMPORAL_UI_ADDR", &o.TemporalUIAddr},
		{partModel, "BERTH_MODEL_ADDR", &o.ModelServer.Addr},
		{partAPI, "BERTH_HTTP_ADDR", &o.API.Addr},
	}
	return slices.DeleteFunc(all, func(a address) bool { return !o.runs(a.part) })
}

func (o *options) runs(part string) bool {
	if len(o.Only) > 0 {
		return slices.Contains(o.Only, part)
	}
	return part != partFleet || o.Demo == "on"
}

// validate says what is wrong with a setting, naming it.
func (o *options) validate() error {
	for _, p := range o.Only {
		if !slices.Contains(partNames(), p) {
			return fmt.Errorf("settings: --only (BERTH_DEV_ONLY): %q is no part; known: %s", p, strings.Join(partNames(), ", "))
		}
	}
	if o.runs(partUI) && !o.runs(partTemporal) {
		return fmt.Errorf("settings: --only (BERTH_DEV_ONLY): ui needs temporal")
	}
	for _, a := range o.addresses() {
		_, port, err := net.SplitHostPort(*a.addr)
		if err != nil {
			return fmt.Errorf("settings: %s: %q is not host:port", a.env, *a.addr)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return fmt.Errorf("settings: %s: %q is no port", a.env, port)
		}
	}
	return o.Validate()
}

// connect points berth's own settings at what runs here, where they were not set otherwise. It is called when
// the ports are known.
func (o *options) connect() {
	if o.Database == "sqlite:.berth/berth.db" {
		o.Database = "sqlite:" + filepath.Join(o.DataDir, "berth.db")
	}
	if o.runs(partUI) {
		o.Temporal.UIURL = "http://" + o.TemporalUIAddr
	}
	o.Worker.Drain = min(o.Worker.Drain, drain)
	if o.Model.LocalURL == "" && o.runs(partModel) {
		o.Model.LocalURL = "http://" + o.ModelServer.Addr + "/v1"
	}
}
