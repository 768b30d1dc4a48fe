// Package api serves berth's HTTP API. JSON calls are described and validated by huma; events and assets have raw handlers
// with their own descriptions in the same OpenAPI document. All errors become problem details in one place. The package
// keeps no state: any number of processes serve the same tasks.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humaecho"
	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"

	"berth"
	"berth/api/console"
	"berth/internal/catalog"
	"berth/internal/extract"
	"berth/internal/fleet"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/payload"
	"berth/internal/placement"
	"berth/internal/raster"
	"berth/internal/routing"
	"berth/internal/starter"
	"berth/internal/waiting"
	"berth/lua"
	"berth/workflows"
)

// Starter starts workflows and talks to them; *starter.Starter is one, and documents the methods.
type Starter interface {
	SubmitTask(ctx context.Context, plan berth.TaskPlan) (task berth.Task, replay bool, err error)
	CancelTask(ctx context.Context, task berth.TaskRef) error

	Dispatch(ctx context.Context, job starter.JobCall) (reply workflows.DispatchReply, replay bool, err error)
	FinalizeTurn(ctx context.Context, turnID string, req workflows.FinalizeRequest) (workflows.FinalizeReply, error)
	GetTurn(ctx context.Context, turnID string) (berth.Turn, error)
	// ListTurns returns a page of turns, TurnDispatches the dispatches of one, and CountTurns the number of open ones.
	ListTurns(ctx context.Context, q starter.TurnQuery, cursor string, limit int) (turns []starter.TurnRun, next string, err error)
	TurnDispatches(ctx context.Context, turnID string) ([]starter.Dispatched, error)
	CountTurns(ctx context.Context) (int64, error)
	// DescribeQueue returns the state of a task queue of Temporal.
	DescribeQueue(ctx context.Context, name string) (starter.QueueState, error)

	SubmitExecution(ctx context.Context, key string, in workflows.ExecutionInput) (reply workflows.ExecuteReply, replay bool, err error)
	GetExecution(ctx context.Context, key string) (berth.Execution, error)
	CancelExecution(ctx context.Context, key string) error

	CreateConference(ctx context.Context, in workflows.ConferenceInput) (c berth.Conference, replay bool, err error)
	ReleaseConference(ctx context.Context, e164 string, req workflows.ReleaseRequest) (done bool, err error)
	MoveConference(ctx context.Context, e164 string, req workflows.MoveRequest) (berth.Conference, error)
	ExtendConference(ctx context.Context, e164 string, req workflows.ExtendRequest) (berth.Conference, error)
	SignalConference(ctx context.Context, e164, signal string, arg any) (running bool, err error)
	SendRecord(ctx context.Context, in workflows.RecordInput, again bool) error
	SendEvent(ctx context.Context, in workflows.WebhookInput, again bool) error
	ReportUnits(ctx context.Context, units []berth.NodeRef) error

	// Reconcile starts a full pass of the reconciliation and returns its id.
	Reconcile(ctx context.Context, dryRun bool) (passID string, err error)
}

// Fleet is the fleet as this process last read it from Redis; *fleet.Fleet is one.
type Fleet interface {
	// Snapshot never returns nil.
	Snapshot() *fleet.Snapshot
	// Writable returns nil, or CodeUnavailable while Redis is unavailable.
	Writable() error
	// Ready is closed after the first read.
	Ready() <-chan struct{}
	// CatchUp returns when the snapshot has Redis's current configuration, or when ctx ends; CatchUpNodes also waits for nodes.
	CatchUp(ctx context.Context)
	CatchUpNodes(ctx context.Context, nodes ...string)
}

// Health is the state of this process and of its dependencies; *health.Probe is one.
type Health interface{ Report() health.Report }

// Signalling connects participants of conferences to media units; *signalling.Proxy is one, and documents the methods.
type Signalling interface {
	Serve(w http.ResponseWriter, r *http.Request) error
	Refuse(ctx context.Context, c berth.Conference) error
	Direct(ctx context.Context, c berth.Conference, of identity.Participation) (address, token string, err error)
	Remove(ctx context.Context, c berth.Conference, identity string) error
}

// Config holds the settings of an operator. Zero values have the defaults stated here.
type Config struct {
	Secrets           identity.SecretSource     // HS256 secrets of tokens and tickets; required
	TicketTTL         time.Duration             // 30 s, which is also the maximum
	CORSOrigins       []string                  // origins whose pages may call the API; "*" for all
	MaxUploadBytes    int64                     // 10 MiB
	PDFToText         string                    // program that reads PDF files: pdftotext of poppler
	HeartbeatInterval time.Duration             // of event streams: 15 s
	BodyTimeout       time.Duration             // to receive a JSON body: 15 s; four times that for an upload
	TemporalUIURL     string                    // for links, and its origin may decode payloads; empty: none
	TemporalNamespace string                    // for links: "default"
	PayloadKeys       payload.Keys              // decrypt payloads for the Temporal UI
	ReplayWindow      time.Duration             // in which equal requests without a key are one task: 10 min
	TurnTimeout       time.Duration             // from a turn's last segment to its end: 10 s
	JobTimeout        time.Duration             // limit of one job on one node: 30 s
	Conferences       workflows.ConferenceRules // recovery: every 5 min, for 30 min; 10 s for a command
	Admission         Admission                 // of tasks; zero values are no limits
	NumbersFrom       string                    // first number that is assigned to conferences: 8881000000
	RecordWithin      time.Duration             // for how long sending a detail record is retried; 0 where none are sent
	PrivateWebhooks   bool                      // webhooks may have http URLs and addresses that are not public
	SignallingURL     string                    // where participants connect; empty: the address of the request
	SignallingDirect  bool                      // participants connect to the media units, not to the signalling proxy
	TaskQueues        func() []string           // of Temporal, whose state operators see
	ReconcileEvery    time.Duration             // between two passes of the reconciliation: 30 s
	CallWait          time.Duration             // for a slot by a call of OpenAI's protocol: 5 min
	CallHold          time.Duration             // until such a call responds that it waits: 5 s
	SignIn            SignIn                    // with which users of the page sign in; empty: by token only
	Production        bool
	Version           string
}

// Deps are the dependencies of the API. All but Verifier and Clock are required.
type Deps struct {
	Starter    Starter
	Ledger     *ledger.Ledger
	Hub        Hub
	Routing    *routing.Routing
	Templates  *catalog.Catalog
	Scripts    *lua.Scripts
	Positions  *waiting.Board
	Fleet      Fleet
	Health     Health
	Signalling Signalling
	Gateway    Gateway
	Keys       Keys
	Config     Config
	Logger     *slog.Logger
	Verifier   identity.Verifier // nil: HS256 with Config.Secrets
	Clock      func() time.Time
}

type server struct {
	Deps
	log      *slog.Logger
	verifier identity.Verifier
	tickets  identity.Tickets
	invited  identity.Participants
	placer   *placement.Placer
	echo     *echo.Echo
	doc      huma.API
	rules    map[string]rule     // written by New only
	queries  map[string][]string // names of the query parameters of each route; written by New only
	bodies   map[string]described
	errs     []error // of the registration of routes; written by New only
	// openAIPaths are the paths below openAIPath that have no parameters; written by New only.
	openAIPaths []string
	listing     atomic.Pointer[listing]
	stats       atomic.Pointer[map[string]map[berth.ExcludeReason]int64] // of exclusions, as last read
	overview    atomic.Pointer[overview]                                 // as last read
	queued      atomic.Pointer[queuesRead]                               // as last read
	tagged      atomic.Pointer[templatesTag]
	// pagePolicy is the security policy of the page.
	pagePolicy string
	// documents reads uploaded files; decoding limits the pixels of the images that are decoded.
	documents *extract.Reader
	decoding  *semaphore.Weighted
	opening   *semaphore.Weighted // event streams that are being opened, see maxOpening
	repeated  *semaphore.Weighted // see maxRepeated
	received  *semaphore.Weighted // bytes of bodies, see maxBodies
}

// New returns a router with all routes, their descriptions and their access rules.
func New(d Deps) (*echo.Echo, error) {
	s, err := newServer(d)
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = s.fail
	e.StdLogger = slog.NewLogLogger(d.Logger.Handler(), slog.LevelDebug) // errors of broken clients
	e.Use(s.begin, s.compressed(), s.rescue, unescape, s.codecOrigin, signalOrigin, s.crossOrigin(), s.rateFields, s.guard, s.checkQuery, checkKey, s.bound, s.audit)
	s.echo, s.doc = e, newDocument(e)
	s.taskRoutes()
	s.taskEventRoute()
	s.sessionRoutes()
	s.turnRoutes()
	s.executionRoutes()
	s.conferenceRoutes()
	s.participantRoutes()
	s.linkRoutes()
	s.signalRoutes()
	s.sessionEventRoute()
	s.operatorEventRoute()
	s.overviewRoutes()
	s.assetRoutes()
	s.ticketRoute()
	s.signInRoute()
	s.templateRoutes()
	s.accountRoutes()
	s.modelRoutes()
	s.routingRoutes()
	s.reconciliationRoutes()
	s.nodeRoutes()
	s.poolRoutes()
	s.teamRoutes()
	s.keyRoutes()
	s.webhookRoutes()
	s.budgetRoutes()
	s.fleetConfigRoutes()
	s.assignmentRoutes()
	s.usageRoute()
	s.auditRoute()
	s.codecRoute()
	s.operationRoutes()
	s.openAIRoutes()
	if err := errors.Join(s.errs...); err != nil {
		return nil, err
	}
	s.describeActions()
	s.describeErrors()
	s.queries, s.bodies = describedQueries(s.doc.OpenAPI(), s.rules), describedBodies(s.doc.OpenAPI())
	page := console.New()
	e.RouteNotFound("/*", func(c echo.Context) error { return s.elsewhere(c, page) })
	for _, r := range e.Routes() {
		if _, ok := s.rules[routeKey(r.Method, r.Path)]; !ok && r.Method != echo.RouteNotFound {
			return nil, fmt.Errorf("route %s %s has no access rule", r.Method, r.Path)
		}
	}
	return e, nil
}

// catalog returns the routing of this moment. An operation that needs it twice keeps it.
func (s *server) catalog() *llm.Catalog { return s.Routing.Current().Catalog }

func newServer(d Deps) (*server, error) {
	if d.Starter == nil || d.Ledger == nil || d.Hub == nil || d.Routing == nil || d.Templates == nil || d.Scripts == nil || d.Positions == nil ||
		d.Fleet == nil || d.Health == nil || d.Signalling == nil || d.Gateway == nil || d.Keys == nil || d.Logger == nil {
		return nil, errors.New("api: every dependency but Verifier and Clock is required")
	}
	c := &d.Config
	short := func(secret string) bool { return len(secret) < identity.MinSecret }
	if c.Secrets == nil || len(c.Secrets.Current()) == 0 || c.Production && slices.ContainsFunc(c.Secrets.Current(), short) {
		return nil, fmt.Errorf("api: set Secrets, in production to at least %d bytes each", identity.MinSecret)
	}
	if c.TicketTTL = cmp.Or(c.TicketTTL, identity.MaxTicketTTL); c.TicketTTL > identity.MaxTicketTTL {
		return nil, fmt.Errorf("api: TicketTTL must be at most %s", identity.MaxTicketTTL)
	}
	c.MaxUploadBytes = cmp.Or(c.MaxUploadBytes, 10<<20)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 15*time.Second)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 15*time.Second)
	c.TemporalNamespace = cmp.Or(c.TemporalNamespace, "default")
	c.ReplayWindow = cmp.Or(c.ReplayWindow, 10*time.Minute)
	c.TurnTimeout = cmp.Or(c.TurnTimeout, 10*time.Second)
	c.JobTimeout = cmp.Or(c.JobTimeout, 30*time.Second)
	c.Conferences.Retry = cmp.Or(c.Conferences.Retry, 5*time.Minute)
	c.Conferences.GiveUp = cmp.Or(c.Conferences.GiveUp, 30*time.Minute)
	c.Conferences.Command = cmp.Or(c.Conferences.Command, 10*time.Second)
	c.CallWait = cmp.Or(c.CallWait, 5*time.Minute)
	c.CallHold = cmp.Or(c.CallHold, 5*time.Second)
	c.ReconcileEvery = cmp.Or(c.ReconcileEvery, 30*time.Second)
	c.NumbersFrom = cmp.Or(c.NumbersFrom, "8881000000")
	if err := berth.ValidE164("NumbersFrom", c.NumbersFrom); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	fleet.BeginLost(berth.DepartureServiceLost)
	s := &server{
		Deps: d, log: d.Logger, verifier: d.Verifier, rules: map[string]rule{},
		documents: extract.NewReader(cmp.Or(c.PDFToText, "pdftotext")), decoding: semaphore.NewWeighted(raster.MaxPixels),
		opening: semaphore.NewWeighted(maxOpening), repeated: semaphore.NewWeighted(maxRepeated),
		received: semaphore.NewWeighted(maxBodies),
	}
	origin, err := c.SignIn.origin()
	if err != nil {
		return nil, err
	}
	s.pagePolicy = consolePolicy(origin, c.SignallingURL)
	s.placer = placement.New(d.Scripts, d.Fleet)
	s.invited = identity.Participants{Secrets: c.Secrets, Clock: d.Clock}
	s.tickets = identity.Tickets{Secrets: c.Secrets, TTL: c.TicketTTL, Clock: d.Clock}
	if s.verifier == nil {
		s.verifier = &identity.Tokens{
			Secrets: c.Secrets, Audiences: []string{identity.Audience}, Leeway: identity.DefaultLeeway, Clock: d.Clock,
		}
	}
	return s, nil
}

// newDocument returns huma without its own routes, whose pages load scripts from a CDN.
func newDocument(e *echo.Echo) huma.API {
	cfg := huma.DefaultConfig("berth", apiVersion)
	cfg.Info.Description = "A durable dispatcher for scarce capacity: language model tasks, translation sessions, executions on nodes, and " +
		"conferences on media units." + describeCodes()
	cfg.Servers = []*huma.Server{{URL: ".", Description: "The server that this description was read from"}}
	cfg.Tags = tags
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.CreateHooks = nil
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readJSON}
	cfg.Formats = map[string]huma.Format{"application/json": format, "json": format}
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: describeScopes()},
		"ticket": {Type: "apiKey", In: "query", Name: "ticket", Description: "From POST /v1/tickets: opens the events of one task, session or conference, for 30 seconds"},
	}
	doc := humaecho.New(e, cfg)
	describeEnums(doc.OpenAPI().Components.Schemas)
	return doc
}

// tags group the calls in the description.
var tags = []*huma.Tag{
	{Name: "account", Description: "The caller, credits, and the logs of calls and actions"},
	{Name: "assets", Description: "Uploaded and stored texts and images"},
	{Name: "assignments", Description: "Slots of nodes for work that berth does not run"},
	{Name: "conferences", Description: "Conferences on media units, their participants and invitations"},
	{Name: "config", Description: "Settings of the fleet"},
	{Name: "events", Description: "Streams of Server-Sent Events, and tickets that open them"},
	{Name: "executions", Description: "Executors that run on nodes"},
	{Name: "keys", Description: "API keys of programs that call models by OpenAI's protocol, and budgets"},
	{Name: "models", Description: "Models, their limits and their queues"},
	{Name: "nodes", Description: "Nodes of the fleet: registration, heartbeats and orders of operators"},
	{Name: "operations", Description: "State of the process and of the service"},
	{Name: "pools", Description: "Pools of nodes, and which tenants use them"},
	{Name: "teams", Description: "Teams and applications, which share the models by weight"},
	{Name: "sessions", Description: "Live translation: sessions, turns and their jobs"},
	{Name: "signalling", Description: "Connections of participants to media units"},
	{Name: "tasks", Description: "Language model tasks"},
	{Name: "webhooks", Description: "URLs to which events about ended work are sent"},
	{Name: "templates", Description: "What tasks are made of: variables, steps, prompts and schemas, in versions"},
}

// apiVersion is the version of the OpenAPI description, not of the program.
const apiVersion = "1.0.0"

// register adds a JSON call, which huma validates and describes. The route is a method and a path, r states who may call
// it, and the handler returns the body of the response. The description has the names of the types of bodies.
func register[I, T any](s *server, route string, r rule, handler func(context.Context, *I) (*T, error), op huma.Operation) {
	registerOutput(s, route, r, func(ctx context.Context, in *I) (*struct{ Body T }, error) {
		body, err := handler(ctx, in)
		if err != nil {
			return nil, err
		}
		return &struct{ Body T }{*body}, nil
	}, op)
}

// registerOutput is register for a response with a status or headers of its own, or without a body.
func registerOutput[I, O any](s *server, route string, r rule, handler func(context.Context, *I) (*O, error), op huma.Operation) {
	s.describe(&op, route, r)
	op.MaxBodyBytes = maxBodyBytes + 1 // readBody enforces the limit
	op.BodyReadTimeout = -1
	handler, err := asNode(r, handler)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("api: %s: %w", route, err))
		return
	}
	huma.Register(s.doc, op, handler)
}

// route adds a raw handler with its own description. It must not accept tokens of scope node, which register checks.
func (s *server) route(route string, r rule, handler echo.HandlerFunc, op huma.Operation) {
	if r.raw = true; slices.Contains(r.scopes, identity.ScopeNode) {
		s.errs = append(s.errs, fmt.Errorf("api: %s: a raw route cannot accept tokens of scope node", route))
	}
	s.describe(&op, route, r)
	op.Responses["default"] = s.problemResponse()
	s.doc.OpenAPI().AddOperation(&op)
	s.echo.Add(op.Method, echoPath(op.Path), handler)
}

// op describes a call. Its status is 200, or 204 without a body, unless withStatus sets another one.
func op(id, tag, summary string, description ...string) huma.Operation {
	return huma.Operation{OperationID: id, Tags: []string{tag}, Summary: summary, Description: strings.Join(description, "")}
}

func withStatus(status int, op huma.Operation) huma.Operation {
	op.DefaultStatus = status
	return op
}

// withResponses adds responses to the description of a call.
func withResponses(responses map[string]*huma.Response, op huma.Operation) huma.Operation {
	op.Responses = responses
	return op
}

// describe completes the description of a route, and sets its rule.
func (s *server) describe(op *huma.Operation, route string, r rule) {
	op.Method, op.Path, _ = strings.Cut(route, " ")
	r.operation = op.OperationID
	s.rules[routeKey(op.Method, echoPath(op.Path))] = r
	if r.public {
		op.Security = []map[string][]string{} // none, rather than the default of a reader
		return
	}
	if len(r.scopes) == 0 {
		op.Security = []map[string][]string{{"bearer": {}}}
	}
	for _, scope := range r.scopes { // one of them suffices
		op.Security = append(op.Security, map[string][]string{"bearer": {scope}})
	}
	if r.ticket != noTicket {
		op.Security = append(op.Security, map[string][]string{"ticket": {}})
	}
}

func (s *server) problemResponse() *huma.Response {
	return response("Error", problemType, s.schemaOf(Problem{}))
}

func response(description, mediaType string, body *huma.Schema) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{mediaType: {Schema: body}}}
}

// alternative returns the responses of a call that has a JSON response with another status.
func (s *server) alternative(status, description string, body any) map[string]*huma.Response {
	return map[string]*huma.Response{
		status: response(description, echo.MIMEApplicationJSON, s.schemaOf(body)), "default": s.problemResponse(),
	}
}

// echoPath returns an OpenAPI path in the router's syntax.
func echoPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// consolePolicy restricts the page to its own scripts and styles, and to connections to this server, the provider with which users
// sign in and the signalling proxy.
func consolePolicy(provider, signalURL string) string {
	connect := strings.TrimSpace("'self' " + provider)
	if u, err := url.Parse(signalURL); err == nil && u.Host != "" { // clients also call it with HTTP
		connect += " " + u.Scheme + "://" + u.Host + " " + strings.Replace(u.Scheme, "ws", "http", 1) + "://" + u.Host
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src " + connect +
		"; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}

// consolePermissions lets the page of a conference use microphones and cameras.
const consolePermissions = "camera=(self), microphone=(self), display-capture=(), geolocation=(), payment=(), usb=()"

// elsewhere serves the page and its files. Every other path is not found, for browsers with a page.
func (s *server) elsewhere(c echo.Context, page *console.Page) error {
	req := c.Request()
	if allowed := s.allowed(c); len(allowed) > 0 && !otherResponses(req.URL.Path) {
		return wrongMethod(c, allowed)
	}
	reading := req.Method == http.MethodGet || req.Method == http.MethodHead
	found := page.Has(req.URL.Path)
	switch ofAPI := req.URL.Path == "/v1" || strings.HasPrefix(req.URL.Path, "/v1/"); {
	case found && !reading:
		return wrongMethod(c, []string{http.MethodGet, http.MethodHead})
	case ofOpenAI(req.URL.Path):
		return berth.Errorf(berth.CodeNotFound, "%s %s is not a route of berth; %s has %s", req.Method, req.URL.Path, openAIPath, strings.Join(s.openAIPaths, ", "))
	case !found && meantForOpenAI(req.URL.Path):
		return berth.Errorf(berth.CodeNotFound, "%s %s is not a route of berth: the base URL of clients of OpenAI's protocol ends with %s", req.Method, req.URL.Path, openAIPath)
	case !found && (!reading || ofAPI || !strings.Contains(req.Header.Get(echo.HeaderAccept), echo.MIMETextHTML)):
		return berth.Errorf(berth.CodeNotFound, "route not found")
	case !found:
		return c.HTML(http.StatusNotFound, console.NotFound(req.URL.Path))
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentSecurityPolicy, s.pagePolicy)
	h.Set("Permissions-Policy", consolePermissions)
	h.Del(echo.HeaderCacheControl) // the page sets its own: some of its files never change
	page.ServeHTTP(c.Response(), req)
	return nil
}

// wrongMethod returns the error of a request with a method that the path does not have.
func wrongMethod(c echo.Context, allowed []string) error {
	list := strings.Join(allowed, ", ")
	c.Response().Header().Set(echo.HeaderAllow, list)
	return echo.NewHTTPError(http.StatusMethodNotAllowed, fmt.Sprintf("%s does not accept %s, only %s", c.Request().URL.Path, c.Request().Method, list))
}

// allowed returns the methods of a path. With a route for unknown paths, the router does not report them.
func (s *server) allowed(c echo.Context) []string {
	var methods []string
	probe := c.Echo().NewContext(c.Request(), nil)
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe.Reset(c.Request(), nil)
		c.Echo().Router().Find(m, echo.GetPath(c.Request()), probe)
		if _, ok := s.rules[routeKey(m, probe.Path())]; ok {
			methods = append(methods, m)
		}
	}
	return methods
}
