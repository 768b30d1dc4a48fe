package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth"
	"berth/api"
	"berth/internal/apikey"
	"berth/internal/breaker"
	"berth/internal/fleet"
	"berth/internal/gateway"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/internal/signalling"
	"berth/internal/stream"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/internal/testtemplate"
	"berth/internal/waiting"
	"berth/lua"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret of the tests that is long enough for HS256"

// fakeStarter stores submitted tasks in the ledger, as the workflow does.
type fakeStarter struct {
	*fakeWorkflows
	ledger  *ledger.Ledger
	down    atomic.Bool
	submits atomic.Int64
	tried   sync.Map // ids of submitted tasks
	cancels chan berth.TaskRef
}

var errDown = berth.Errorf(berth.CodeUnavailable, "Temporal is unavailable; retry")

func (s *fakeStarter) SubmitTask(ctx context.Context, plan berth.TaskPlan) (berth.Task, bool, error) {
	s.submits.Add(1)
	s.tried.Store(plan.ID, true)
	if s.down.Load() {
		return berth.Task{}, false, errDown
	}
	t, created, err := s.ledger.CreateTask(ctx, berth.Task{TaskPlan: plan, DeadlineAt: time.Now().Add(time.Hour)})
	return t, !created, err
}

// ids returns the ids of the tasks that were submitted, accepted or not.
func (s *fakeStarter) ids() (ids []string) {
	s.tried.Range(func(id, _ any) bool { ids = append(ids, id.(string)); return true })
	return ids
}

func (s *fakeStarter) CancelTask(_ context.Context, task berth.TaskRef) error {
	if s.down.Load() {
		return errDown
	}
	s.cancels <- task
	return nil
}

// reporter reports what the test sets.
type reporter struct{ report atomic.Pointer[health.Report] }

func newReporter() *reporter {
	r := &reporter{}
	r.report.Store(&health.Report{Status: health.OK, Version: "test", Dependencies: map[string]health.Dependency{"redis": {Status: health.OK}}})
	return r
}

func (r *reporter) Report() health.Report { return *r.report.Load() }

// harness is the complete API with a real Redis and a real database, but without workflows.
type harness struct {
	t        *testing.T
	base     string
	starter  *fakeStarter
	ledger   *ledger.Ledger
	database string // its file
	redis    *testredis.Server
	client   *redis.Client
	scripts  *lua.Scripts
	limits   func(model string) lua.ModelLimits
	settling atomic.Int64 // how long the settlement of a call takes at least
	fleet    *fleet.Fleet
	pub      *stream.Publisher
	health   *reporter
	log      *logBuffer
	server   *http.Server
	http     *http.Client
	refusals map[ledger.AuditEvent]int64 // that refused has seen
}

// slowLedger takes its time to settle calls.
type slowLedger struct {
	*ledger.Ledger

	delay *atomic.Int64
}

func (l slowLedger) EndCall(ctx context.Context, c ledger.DirectCall, outcomes []ledger.ModelCall, charged berth.Credits) error {
	<-time.After(time.Duration(l.delay.Load()))
	return l.Ledger.EndCall(ctx, c, outcomes, charged)
}

func newHarness(t *testing.T, change ...func(*api.Deps)) *harness {
	t.Helper()
	h := &harness{t: t, refusals: map[ledger.AuditEvent]int64{}, redis: testredis.Start(t), health: newReporter(), log: newLog()}
	logger := slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	dsn := testledger.Migrated.SQLite(t)
	h.database = strings.TrimPrefix(dsn, "sqlite:")
	h.ledger, err = ledger.Open(ctx, dsn, logger)
	require.NoError(t, err)
	h.credit("alice", 1000)
	h.client = h.redis.Client()
	h.scripts = lua.New(h.client, lua.Keys{Cell: testredis.Cell(t)})
	h.pub = stream.NewPublisher(h.scripts, stream.Options{Logger: logger})
	h.fleet = fleet.New(h.scripts, fleet.Options{Settle: 5 * time.Millisecond, Tick: 2 * time.Second, Logger: logger})
	hub := stream.NewHub(h.scripts, stream.HubOptions{Logger: logger})
	catalog, err := llm.LoadCatalog("")
	require.NoError(t, err)
	until := float64(time.Now().Add(time.Hour).UnixMilli()) // for longer than a worker marks them, since none repeats it
	mark := func(name string) {
		require.NoError(t, h.client.ZAdd(ctx, h.scripts.Keys().Pollers(), redis.Z{Score: until, Member: name}).Err())
	}
	for _, model := range catalog.UsedModels(testtemplate.All()) {
		mark(berth.ModelTaskQueue(model))
	}
	for _, m := range catalog.Models() {
		for _, u := range m.Upstreams {
			mark(lua.PolledUpstream(m.Name, u.Name))
		}
	}
	h.starter = &fakeStarter{fakeWorkflows: newFakeWorkflows(h.scripts), ledger: h.ledger, cancels: make(chan berth.TaskRef, 8)}
	keys, err := signalling.NewKeys("", logger)
	require.NoError(t, err)
	proxy := signalling.New(signalling.Options{
		Ledger: h.ledger, Nodes: h.scripts, Fleet: h.fleet, Redis: h.scripts, Channel: h.scripts.Keys().ConferenceUpdated(),
		Tokens: identity.Participants{Secrets: identity.Secrets{secret}}, Keys: keys, Hold: 100 * time.Millisecond, Logger: logger,
	})
	deps := api.Deps{
		Signalling: proxy,
		Starter:    h.starter, Ledger: h.ledger, Hub: hub, Routing: routing.Fixed(catalog), Templates: testtemplate.Catalog(t, h.ledger),
		Scripts: h.scripts, Positions: waiting.NewBoard(h.scripts, logger), Fleet: h.fleet, Health: h.health, Logger: logger,
		Config: api.Config{
			Secrets: identity.Secrets{secret}, HeartbeatInterval: 100 * time.Millisecond, Version: "test",
			TemporalUIURL: "http://ui.test:8233/", MaxUploadBytes: 2 << 20,
		},
	}
	for _, c := range change {
		c(&deps)
	}
	h.limits = func(model string) lua.ModelLimits { return deps.Routing.Current().LimitsOf(model, 5) }
	slots := lease.New(h.scripts, lease.Options{ProcessID: "api", Limits: h.limits, Logger: logger})
	models := llm.NewClient(deps.Routing.Of, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, logger)
	calls := gateway.New(gateway.Options{
		Process: "api", Ledger: slowLedger{h.ledger, &h.settling}, Scripts: h.scripts, Slots: slots, Models: models, Catalog: deps.Routing.Of, ModelLimits: h.limits,
		Breaker: breaker.New(h.scripts, logger), Logger: logger,
	})
	deps.Gateway, deps.Keys = calls, apikey.New(h.ledger)
	e, err := api.New(deps)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.base = "http://" + l.Addr().String()
	h.server = api.NewServer(e, l.Addr().String(), false)
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	h.http = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	done := make(chan error, 7)
	go func() { done <- slots.Run(ctx) }()
	go func() { done <- calls.Run(ctx) }()
	go func() { done <- deps.Positions.Run(ctx) }()
	go func() { done <- hub.Run(ctx) }()
	go func() { done <- proxy.Run(ctx) }()
	go func() { done <- h.fleet.Run(ctx) }()
	go func() { done <- h.server.Serve(l) }()
	<-h.fleet.Ready() // the fleet has been read
	h.unguarded()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop, cancelStop := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancelStop()
		require.NoError(t, h.server.Shutdown(stop))
		cancel()
		for range cap(done) {
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				require.NoError(t, err)
			}
		}
		require.NoError(t, h.ledger.Close())
	})
	return h
}

// logBuffer collects the log. The channel holds the buffer while no call uses it.
type logBuffer struct{ held chan *bytes.Buffer }

func newLog() *logBuffer {
	l := &logBuffer{held: make(chan *bytes.Buffer, 1)}
	l.held <- &bytes.Buffer{}
	return l
}

func (l *logBuffer) Write(b []byte) (int, error) {
	buf := <-l.held
	defer func() { l.held <- buf }()
	return buf.Write(b)
}

func (l *logBuffer) String() string {
	buf := <-l.held
	defer func() { l.held <- buf }()
	return buf.String()
}

func (h *harness) token(user string, scopes ...string) string {
	h.t.Helper()
	if len(scopes) == 0 {
		scopes = []string{identity.ScopeUser}
	}
	return h.grant(identity.Grant{UserID: user, Scopes: scopes, Nodes: []string{"*"}})
}

// grant returns a token with the rights of g.
func (h *harness) grant(g identity.Grant) string {
	h.t.Helper()
	g.TTL = time.Hour
	t, err := identity.Issue(secret, g)
	require.NoError(h.t, err)
	return t
}

// answer is a response that was read completely.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem api.Problem
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal(a.body, &m), string(a.body))
	return m
}

func (h *harness) request(method, path, token string, body io.Reader, header ...string) *http.Request {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.base+path, body)
	require.NoError(h.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (h *harness) do(req *http.Request) answer {
	h.t.Helper()
	res, err := h.http.Do(req)
	require.NoError(h.t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(h.t, err)
	a := answer{status: res.StatusCode, header: res.Header, body: b}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem+json") {
		require.NoError(h.t, json.Unmarshal(b, &a.problem), string(b))
	}
	if a.problem.Code != "" {
		requireDescribed(h.t, req.Method, req.URL.EscapedPath(), a)
	}
	if media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";"); media == "application/json" && a.status < http.StatusMultipleChoices && a.header.Get("Content-Encoding") == "" {
		requireBody(h.t, req.Method, req.URL.EscapedPath(), a.status, media, b)
	}
	if a.status == http.StatusTooManyRequests {
		require.Positive(h.t, a.problem.RetryAfter, "%s %s", req.Method, req.URL.Path)
		require.Equal(h.t, strconv.Itoa(a.problem.RetryAfter), a.header.Get("Retry-After"), "%s %s", req.Method, req.URL.Path)
	}
	return a
}

// call sends a value as JSON; a string is sent unchanged.
func (h *harness) call(method, path, token string, body any, header ...string) answer {
	h.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		enc, err := json.Marshal(b)
		require.NoError(h.t, err)
		r = bytes.NewReader(enc)
	}
	return h.do(h.request(method, path, token, r, append([]string{"Content-Type", "application/json"}, header...)...))
}

// doc is a JSON object.
type doc = map[string]any

// match returns a valid submission of a job match.
func match(change ...func(doc)) doc {
	d := doc{
		"serviceId": "svc", "template": "job_match", "locale": "en",
		"variables": doc{"resume": "I write Go.", "jobText": "We seek a Go engineer."},
	}
	for _, c := range change {
		c(d)
	}
	return d
}

// task stores a task of the user in the ledger.
func (h *harness) task(user, id string, steps ...berth.Step) berth.Task {
	h.t.Helper()
	if len(steps) == 0 {
		steps = []berth.Step{
			{Name: "summary", Mode: berth.ModeBatch, Queue: "q_paid_batch", Model: "deepseek-chat", Status: "SUMMARY_PENDING"},
			{Name: "match", Mode: berth.ModeStream, Queue: "q_paid_stream", Model: "deepseek-reasoner", Status: "MATCH_PENDING"},
		}
	}
	t, _, err := h.ledger.CreateTask(h.t.Context(), berth.Task{
		TaskPlan: berth.TaskPlan{
			TaskRequest: berth.TaskRequest{
				ID: id, ServiceID: "svc", Template: "job_match", Locale: berth.LocaleEN, Tier: berth.TierPaid,
				Variables: map[string]string{}, RequestID: "r1",
			},
			UserID: user, Steps: steps,
		},
		DeadlineAt: time.Now().Add(time.Hour),
	})
	require.NoError(h.t, err)
	return t
}

// finish ends a task with a result.
func (h *harness) finish(t berth.Task, content string) berth.Task {
	h.t.Helper()
	mediaType := "text/plain; charset=utf-8"
	if strings.HasPrefix(content, "{") {
		mediaType = berth.JSONMediaType
	}
	a, err := h.ledger.PutAsset(h.t.Context(), berth.Asset{
		UserID: t.UserID, Kind: berth.AssetResult, MediaType: mediaType, Content: []byte(content),
	})
	require.NoError(h.t, err)
	done, _, err := h.ledger.FinishTask(h.t.Context(), ledger.End{TaskRef: t.Ref(), Status: berth.TaskCompleted, ResultAssetID: a.ID})
	require.NoError(h.t, err)
	return done
}

// credit adds credits to a user's account.
func (h *harness) credit(user string, amount int64) {
	h.t.Helper()
	_, _, _, err := h.ledger.AddCredits(h.t.Context(), ledger.Grant{UserID: user, Amount: berth.Credits(amount) * berth.Credit, Reason: "test", Key: rand.Text()})
	require.NoError(h.t, err)
}

// credits returns a user's balance in whole credits, which must be the sum of the entries.
func (h *harness) credits(user string) int64 {
	h.t.Helper()
	credits, err := h.ledger.Credits(h.t.Context(), user)
	require.NoError(h.t, err)
	var sum berth.Credits
	for cursor := ""; ; {
		page, next, err := h.ledger.Entries(h.t.Context(), user, cursor, 0)
		require.NoError(h.t, err)
		for _, e := range page {
			sum += e.Amount
		}
		if cursor = next; cursor == "" {
			require.Equal(h.t, sum, credits)
			return int64(credits / berth.Credit)
		}
	}
}

// trail returns the audited events of a task.
func (h *harness) trail(task berth.TaskRef) (events []ledger.AuditEvent) {
	h.t.Helper()
	entries, _, err := h.ledger.AuditLog(h.t.Context(), ledger.AuditQuery{UserID: task.UserID, TaskID: task.TaskID}, "", 0)
	require.NoError(h.t, err)
	for _, e := range slices.Backward(entries) {
		events = append(events, e.Event)
	}
	return events
}

// count returns the number of rows of a table.
func (h *harness) count(table string) (n int) {
	h.t.Helper()
	db, err := sql.Open("sqlite", h.database)
	require.NoError(h.t, err)
	defer func() { _ = db.Close() }()
	require.NoError(h.t, db.QueryRowContext(h.t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// expectPasses sets since when passes of the reconciliation are expected; the database was made for several tests.
func (h *harness) expectPasses(since time.Time) {
	h.t.Helper()
	h.exec(fmt.Sprint("UPDATE reconcile_since SET since = ", since.UnixMilli()))
}

// exec executes statements on a connection to the database that is not the ledger's.
func (h *harness) exec(statements ...string) {
	h.t.Helper()
	db, err := sql.Open("sqlite", "file:"+h.database+"?_pragma=busy_timeout(10000)")
	require.NoError(h.t, err)
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(h.t.Context())
	require.NoError(h.t, err)
	defer func() { _ = conn.Close() }()
	for _, statement := range statements {
		_, err := conn.ExecContext(h.t.Context(), statement)
		require.NoError(h.t, err, statement)
	}
}

// damageDatabase damages the file of the database: no statement succeeds any more.
func (h *harness) damageDatabase() {
	h.t.Helper()
	h.exec("PRAGMA writable_schema = ON", "UPDATE sqlite_schema SET rootpage = 1 << 30 WHERE name = 'audit_log'", "PRAGMA schema_version = 1000000")
}

// refuseWrites makes Redis refuse writes until permit is called. It serves reads.
func (h *harness) refuseWrites() (permit func()) {
	h.t.Helper()
	h.redis.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	return func() { h.redis.Do("CONFIG", "SET", "min-replicas-to-write", "0") }
}

// ref returns the identity of a task of alice.
func ref(id string) berth.TaskRef { return berth.TaskRef{UserID: "alice", TaskID: id} }

func channel(t berth.Task) lua.Channel {
	return lua.Channel{UserID: t.UserID, ServiceID: t.ServiceID, TaskID: t.ID}
}

// full refuses submissions with the time after which to retry.
type full struct{ api.Starter }

func (full) SubmitTask(context.Context, berth.TaskPlan) (berth.Task, bool, error) {
	return berth.Task{}, false, &api.RetryError{
		Err: berth.Errorf(berth.CodeQueueFull, "the queue is full"), After: 7*time.Second + time.Millisecond,
	}
}
