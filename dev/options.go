package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"berth/dev/model"
	"berth/internal/config"
	"berth/internal/secret"
	"berth/internal/setting"
)

// options are the settings of berth and of the development server.
type options struct {
	config.Config `embed:""`
	ModelServer   model.Server `embed:"" group:"Development server"`

	TemporalUIAddr string         `help:"Serve Temporal's Web UI on this address." name:"temporal-ui-addr" env:"BERTH_TEMPORAL_UI_ADDR" default:"127.0.0.1:8233" group:"Development server"`
	TemporalCert   string         `help:"PEM file of the certificate with which Temporal's frontend requires mutual TLS; clients are verified with --temporal-tls-ca." name:"temporal-tls-server-cert" env:"BERTH_TEMPORAL_TLS_SERVER_CERT" group:"Development server"`
	TemporalKey    string         `help:"PEM file of that certificate's key." name:"temporal-tls-server-key" env:"BERTH_TEMPORAL_TLS_SERVER_KEY" group:"Development server"`
	DataDir        string         `help:"Keep all data in this directory. Only one server can use it at a time." name:"data-dir" env:"BERTH_DATA_DIR" default:"./.berth" group:"Development server"`
	Demo           string         `help:"Run simulated nodes and two media units, so that turns and conferences work immediately: ${enum}." name:"demo" env:"BERTH_DEMO" enum:"on,off" default:"on" group:"Development server"`
	LiveKit        string         `help:"Program of the LiveKit servers of the demo's media units, or livekit-server in PATH. Without it they are simulated and cannot be joined." name:"livekit-server" env:"BERTH_LIVEKIT_SERVER" default:"bin/tools/livekit-server-v1.13.5" group:"Development server"`
	RunEvents      int            `help:"Let long workflows continue as new after this many events; 0 means Temporal's default." name:"temporal-run-events" env:"BERTH_TEMPORAL_RUN_EVENTS" default:"0" group:"Development server"`
	Drainage       time.Duration  `help:"Time between checks of whether a version of the workers is drained; 0 means Temporal's default of three minutes." name:"temporal-drainage" env:"BERTH_TEMPORAL_DRAINAGE" default:"0s" group:"Development server"`
	TemporalDB     secret.Address `help:"Keep Temporal's data in this PostgreSQL database in place of a file in the data directory, as postgres://…; it has to be empty or of the same version." name:"temporal-database" env:"BERTH_TEMPORAL_DATABASE" group:"Development server"`
	Only           []string       `help:"Run only these parts: redis, temporal, ui, model, worker, api, fleet." name:"only" env:"BERTH_DEV_ONLY" group:"Development server"`

	liveKit string     // path of the LiveKit server, empty if there is none
	servers []*liveKit // of the demo's media units
}

// defaults are the settings, by their flags, with another default than in the commands of production.
var defaults = map[string]string{
	"webhook-allow-private": "true", // the receivers of a developer run here
}

// withDefaults returns the option with which this command reads its settings.
func withDefaults() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		for _, f := range k.Model.Flags {
			if text, ok := defaults[f.Name]; ok {
				f.HasDefault, f.Default = true, text
			}
		}
		return nil
	})
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

// address is a setting for an address on which a part listens.
type address struct {
	part, env string
	addr      *string
}

func (o *options) addresses() []address {
	all := []address{
		{partRedis, "BERTH_REDIS_ADDR", (*string)(&o.Redis.Addr)},
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

// validate returns an error that names the first invalid setting.
func (o *options) validate() error {
	for _, p := range o.Only {
		if !slices.Contains(partNames(), p) {
			return fmt.Errorf("settings: --only (BERTH_DEV_ONLY): unknown part %q; must be one of %s", p, strings.Join(partNames(), ", "))
		}
	}
	if o.runs(partUI) && !o.runs(partTemporal) {
		return fmt.Errorf("settings: --only (BERTH_DEV_ONLY): the part ui requires the part temporal")
	}
	if own := o.Temporal; o.runs(partTemporal) {
		files := []string{o.TemporalCert, o.TemporalKey, own.TLSCA, own.TLSCert, own.TLSKey}
		if set := slices.DeleteFunc(files, func(f string) bool { return f == "" }); len(set) > 0 && len(set) < 5 {
			return fmt.Errorf("settings: Temporal with TLS needs all of BERTH_TEMPORAL_TLS_SERVER_CERT, BERTH_TEMPORAL_TLS_SERVER_KEY, BERTH_TEMPORAL_TLS_CA, BERTH_TEMPORAL_TLS_CERT and BERTH_TEMPORAL_TLS_KEY")
		}
	}
	for _, a := range o.addresses() {
		if err := setting.HostPort(*a.addr); err != nil {
			return fmt.Errorf("settings: %s: invalid address: %w", a.env, err)
		}
	}
	return o.Validate()
}

// connect sets berth's settings to the parts that run here, unless they were set explicitly. It must be called after the
// ports are known.
func (o *options) connect() {
	if o.Database.IsDefault() {
		o.Database.URL = secret.Address("sqlite:" + filepath.Join(o.DataDir, "berth.db"))
	}
	if o.runs(partUI) {
		o.Temporal.UIURL = secret.Address("http://" + o.TemporalUIAddr)
	}
	o.Worker.Drain = min(o.Worker.Drain, drain)
	if o.Model.LocalURL == "" && o.runs(partModel) {
		o.Model.LocalURL = secret.Address("http://" + o.ModelServer.Addr + "/v1")
	}
}
