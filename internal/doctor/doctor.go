// Package doctor checks the servers that berth is configured to use, and states what to change.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"

	"berth/internal/config"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/redisconn"
	"berth/internal/signal"
	"berth/internal/temporalconn"
	"berth/lua"
)

// Level is the weight of a finding.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // berth works, with a risk that the text states
	Error   Level = "error"   // berth does not work
)

// Finding is the result of one check.
type Finding struct {
	Level   Level
	Subject string // "settings", "models", "redis", "database", "temporal" or "uploads"
	Text    string
	Advice  string // what to change; empty if nothing has to be
}

const (
	// checkTimeout limits the checks of one server.
	checkTimeout = 10 * time.Second
	// maxSkew is the difference between clocks that tokens and tickets of event streams tolerate.
	maxSkew = time.Second
	// minRedis is the oldest major version of Redis or Valkey whose commands berth's scripts use.
	minRedis = 7
	// permitUser is the advice where Redis refuses a command.
	permitUser = "permit the user of BERTH_REDIS_USER what docs/operations.md lists"
)

// Run checks everything, in order. now is the local clock.
func Run(ctx context.Context, cfg config.Config, searchAttributes []string, now func() time.Time) []Finding {
	d := &doctor{cfg: cfg, now: now, pdfToText: "pdftotext", tesseract: "tesseract"}
	d.settings()
	for _, check := range []func(context.Context){
		d.redis, d.database, func(ctx context.Context) { d.temporal(ctx, searchAttributes) }, d.uploads,
	} {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		check(ctx)
		cancel()
	}
	return d.findings
}

type doctor struct {
	cfg      config.Config
	now      func() time.Time
	findings []Finding
	// pdfToText and tesseract are the programs that read uploads.
	pdfToText, tesseract string
}

func (d *doctor) add(l Level, subject, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{l, subject, fmt.Sprintf(format, args...), advice})
}

func (d *doctor) settings() {
	catalog, filesErr := d.files()
	checked := []error{d.cfg.Validate(), filesErr}
	if !d.cfg.Identity.HasSecret() { // Validate accepts that, because not every process needs a secret
		checked = append(checked, d.cfg.NeedSecret())
	}
	for _, err := range checked {
		if err != nil {
			d.add(Error, "settings", "", "%s", err)
		}
	}
	if len(d.findings) == 0 {
		d.add(OK, "settings", "", "valid")
	}
	if catalog != nil {
		d.models(catalog)
	}
}

// files returns the models, nil if they cannot be read, and what is wrong with files that a process reads at its start.
func (d *doctor) files() (catalog *llm.Catalog, err error) {
	routing, err := llm.LoadConfig(d.cfg.Model.RoutingFile)
	if err == nil && d.cfg.Model.Settings().Validate() == nil { // else Validate has named it
		catalog, err = llm.NewCatalog(routing, d.cfg.Model.Settings())
	}
	if err != nil {
		err = fmt.Errorf("--routing-file (BERTH_ROUTING_FILE): %w", err)
	}
	_, keysErr := signal.NewKeys(d.cfg.Signal.Keys, slog.New(slog.DiscardHandler))
	return catalog, errors.Join(err, keysErr)
}

// models checks that calls of the models can be made.
func (d *doctor) models(catalog *llm.Catalog) {
	const subject, advice = "models", "set the keys of the providers, or BERTH_LOCAL_MODEL_URL to the address of the model simulator"
	var unserved []string
	models := catalog.Models()
	for _, m := range models {
		if err := catalog.Served(m.Name); err != nil {
			unserved = append(unserved, fmt.Sprintf("%s (%s)", m.Name, err))
		}
	}
	switch len(unserved) {
	case 0:
		d.add(OK, subject, "", "calls of all %d models can be made", len(models))
	case len(models):
		d.add(Warning, subject, advice, "all tasks are refused, because no model can be called: %s", strings.Join(unserved, "; "))
	default:
		d.add(Warning, subject, advice, "tasks of these models are refused: %s", strings.Join(unserved, "; "))
	}
}

func (d *doctor) redis(ctx context.Context) {
	const subject = "redis"
	client, err := redisconn.Open(ctx, d.cfg.Redis.Options())
	if err != nil {
		d.add(Error, subject, redisAdvice(err), "%s", err)
		return
	}
	defer func() { _ = client.Close() }() // it was only used for checks
	scripts := lua.New(client, lua.Keys{Cell: d.cfg.Redis.Cell})
	guard := scripts.Keys().Guard()
	if err := client.Check(ctx, guard); err != nil {
		d.add(Error, subject, redisAdvice(err), "%s", err)
		return
	}
	server, err := client.Inspect(ctx, guard)
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	d.redisServer(client.Mode(), server)
	sent := d.now()
	seen, err := scripts.ReadServer(ctx)
	received := d.now()
	if lua.UnknownFormat(err) {
		d.add(Error, subject, "", "%s", err)
		return
	}
	if err != nil {
		d.add(Error, subject, permitUser, "scripts cannot read the server: %s", err)
		return
	}
	d.clock(subject, seen.Now.Sub(sent.Add(received.Sub(sent)/2)))
	if _, err := scripts.Tick(ctx, scripts.TickChannel()); err != nil {
		d.add(Error, subject, permitUser, "messages cannot be published: %s", err)
		return
	}
	d.add(OK, subject, "", "scripts run, messages can be published")
}

// redisAdvice returns what to change after a failed connection.
func redisAdvice(err error) string {
	if _, ok := errors.AsType[redisconn.SetupError](redisconn.Setup(err)); ok {
		return "see docs/operations.md, section Redis: modes, TLS, and the permissions of BERTH_REDIS_USER"
	}
	return "check BERTH_REDIS_ADDR and that Redis runs"
}

func (d *doctor) redisServer(mode redisconn.Mode, s redisconn.Server) {
	const subject = "redis"
	if s.Version == "" {
		d.add(Warning, subject, "use Redis 7 or Valkey outside of development", "the embedded server: it loses its data when it stops")
		return
	}
	major := 0
	_, _ = fmt.Sscanf(s.Version, "%d", &major) // 0 is too old
	if major < minRedis {
		d.add(Error, subject, fmt.Sprintf("use version %d or later", minRedis), "%s %s is too old", s.Name, s.Version)
	} else {
		d.add(OK, subject, "", "%s %s, mode %s", s.Name, s.Version, mode)
	}
	if s.Evicts() {
		d.add(Error, subject, "set maxmemory-policy to noeviction", "maxmemory-policy is %s: Redis may delete leases and streams", s.EvictionPolicy)
	}
	switch {
	case s.AppendOnly:
		d.add(OK, subject, "", "persistence: append-only file")
	case s.Save != "":
		d.add(Warning, subject, "set appendonly to yes", "persistence: snapshots only (%s); a restart loses what was written since the last one", s.Save)
	default:
		d.add(Warning, subject, "set appendonly to yes", "no persistence: a restart loses all leases and streams, and grants pause until they are restored")
	}
}

func (d *doctor) clock(subject string, skew time.Duration) {
	if skew.Abs() > maxSkew {
		d.add(Warning, subject, "synchronize the clocks of all hosts (NTP)",
			"its clock differs from this host's by %s: tokens and tickets of event streams may be refused", skew.Round(time.Millisecond))
		return
	}
	d.add(OK, subject, "", "its clock differs from this host's by less than %s", maxSkew)
}

func (d *doctor) database(ctx context.Context) {
	const subject = "database"
	s, err := ledger.Inspect(ctx, d.cfg.Database.Source())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.add(Warning, subject, "check BERTH_DATABASE unless this is the first start", "the file does not exist; berth creates it: %s", err)
		return
	case err != nil:
		d.add(Error, subject, "check BERTH_DATABASE", "%s", err)
		return
	case s.Schema > s.Latest:
		d.add(Error, subject, "upgrade berth", "%s %s has schema version %d, this program knows up to %d", s.Name, s.Version, s.Schema, s.Latest)
	case s.Schema < s.Latest:
		d.add(OK, subject, "", "%s %s, schema version %d; berth migrates it to %d at the next start", s.Name, s.Version, s.Schema, s.Latest)
	default:
		d.add(OK, subject, "", "%s %s, schema version %d", s.Name, s.Version, s.Schema)
	}
	if s.Name == "sqlite" && d.cfg.Production {
		d.add(Warning, subject, "set BERTH_DATABASE to postgres://…", "SQLite serves the processes of one host only")
	}
	if !s.Now.IsZero() {
		d.clock(subject, s.Now.Sub(d.now()))
	}
}

func (d *doctor) temporal(ctx context.Context, searchAttributes []string) {
	const subject = "temporal"
	options, err := d.cfg.Temporal.Options(slog.New(slog.DiscardHandler))
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	client, err := temporalconn.Open(options)
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	defer client.Close()
	system, err := client.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		d.add(Error, subject, "check BERTH_TEMPORAL_ADDR, BERTH_TEMPORAL_TLS… and BERTH_TEMPORAL_API_KEY", "%s", err)
		return
	}
	d.add(OK, subject, "", "server %s", system.GetServerVersion())
	namespace := d.cfg.Temporal.Namespace
	_, err = client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		d.add(Error, subject, "temporal operator namespace create --namespace "+namespace+" --retention 168h", "namespace %s: %s", namespace, err)
		return
	}
	known, err := client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		d.add(Warning, subject, "", "search attributes of namespace %s cannot be listed: %s", namespace, err)
		return
	}
	var missing []string
	for _, name := range searchAttributes {
		if known.GetCustomAttributes()[name] != enumspb.INDEXED_VALUE_TYPE_KEYWORD {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		d.add(Error, subject,
			"temporal operator search-attribute create --namespace "+namespace+" --name "+strings.Join(missing, " --type Keyword --name ")+" --type Keyword",
			"namespace %s lacks search attributes: %s", namespace, strings.Join(missing, ", "))
		return
	}
	d.add(OK, subject, "", "namespace %s with all search attributes", namespace)
}

// Failed reports whether a finding is an error.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Error })
}
