package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/apikey"
	"berth/internal/gateway"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/openai"
	"berth/lua"
)

// The routes of OpenAI's protocol. They are not part of the description of berth's own API: see docs/openai.md.
const (
	openAIPath = "/openai/v1"
	// openAIService names their calls in lists and limits.
	openAIService = "openai"
	// openAIBodyTimes is by how much longer than a JSON body one of these routes may take to arrive.
	openAIBodyTimes = 4
	// jwtDots is the number of dots in a JSON Web Token (RFC 7519, section 3). A token with another number is the key of another server.
	jwtDots = 2
	// maxBodies bounds the bodies of the calls of this process together, in bytes: a call keeps its body until an upstream has it.
	maxBodies = 1 << 30
	// maxIdempotencyKey bounds an Idempotency-Key, in bytes.
	maxIdempotencyKey = 255
)

// Gateway makes calls of models; *gateway.Gateway is one.
type Gateway interface {
	Make(ctx context.Context, c gateway.Call, client gateway.Client) error
	MakeDurable(ctx context.Context, r gateway.Request, client gateway.Client) error
	FollowResponse(ctx context.Context, response berth.TaskRef, after int, client gateway.Client) error
}

// Keys finds API keys; *apikey.Keys is one.
type Keys interface {
	Find(ctx context.Context, secret string) (ledger.KeyAccess, error)
}

func (s *server) openAIRoutes() {
	add := func(method, path string, handler func(echo.Context, modelCaller) error) {
		if name := strings.TrimPrefix(path, "/"); !strings.Contains(name, ":") && !slices.Contains(s.openAIPaths, name) {
			s.openAIPaths = append(s.openAIPaths, name)
		}
		path = openAIPath + path
		r := rule{public: true, raw: true, stream: true} // the handler authenticates: keys are no tokens
		if method == http.MethodGet && path == responsePath {
			r.ticket = identity.TicketResponse
		}
		s.rules[routeKey(method, path)] = r
		s.echo.Add(method, path, func(c echo.Context) error {
			caller, err := s.modelCaller(c, r.ticket)
			if err != nil {
				return err
			}
			return handler(c, caller)
		})
	}
	add(http.MethodPost, "/chat/completions", s.forwards(openai.ParseChat, "chatcmpl-", true))
	add(http.MethodPost, "/embeddings", s.forwards(openai.ParseEmbeddings, "embd-", false))
	s.responseRoutes(add)
	add(http.MethodGet, "/models", s.listOpenAIModels)
	add(http.MethodGet, "/models/:model", s.getOpenAIModel)
}

// modelCaller is who calls a model: an API key, or a user.
type modelCaller struct {
	key    berth.APIKey // its id is empty for a user
	userID string
	group  berth.Group // of a user
	limits lua.AdmissionLimits
}

// modelCaller authenticates the caller of a route, which may accept tickets of a kind.
func (s *server) modelCaller(c echo.Context, ticket identity.TicketKind) (m modelCaller, err error) {
	ctx := c.Request().Context()
	cl := callOf(ctx)
	if p, redeemed, err := s.redeem(c, ticket); redeemed {
		if err != nil {
			return m, err
		}
		cl.user = p
		return s.ticketHolder(ctx, p)
	}
	token, err := bearer(c.Request())
	if err != nil {
		return m, err
	}
	if apikey.Is(token) {
		access, err := s.Keys.Find(ctx, token)
		if err != nil {
			return m, err
		}
		k := access.Key
		cl.user = identity.Principal{UserID: k.ID, TeamID: k.TeamID, AppID: k.AppID}
		return modelCaller{key: k, userID: k.ID, limits: lua.AdmissionLimits{
			Service: k.MaxCalls, Rate: k.RPM, Tokens: k.TPM, Team: access.Team.MaxTasks, App: access.App.MaxTasks,
		}}, nil
	}
	if strings.Count(token, ".") != jwtDots {
		return m, berth.Errorf(berth.CodeUnauthenticated, "incorrect API key: the keys of this server begin with %s", apikey.Prefix)
	}
	p, err := s.verifier.Verify(ctx, token)
	if err != nil {
		return m, fmt.Errorf("verify token: %w", err)
	}
	if !p.Has(identity.ScopeModels) {
		return m, berth.Errorf(berth.CodeForbidden, "the token lacks the scope %s: use an API key, which operators create", identity.ScopeModels)
	}
	cl.user = p
	group, levels, err := s.groupOf(ctx, openAIService, "")
	return modelCaller{userID: p.UserID, group: group, limits: lua.AdmissionLimits{
		Service: s.Config.Admission.Service, Rate: s.Config.Admission.PaidRate, Team: levels.team, App: levels.app,
	}}, err
}

// calledModel returns a model that the caller may call.
func (s *server) calledModel(models *llm.Catalog, m modelCaller, name string) (llm.Model, error) {
	if name == "" {
		return llm.Model{}, &openai.Error{
			Status: http.StatusBadRequest, Type: openai.TypeRequest, Param: "model", Code: "missing_required_parameter", Message: "the parameter model is required", Final: true,
		}
	}
	model, ok := models.Model(name)
	if !ok || !m.key.Allows(model.Name) {
		return llm.Model{}, &openai.Error{
			Status: http.StatusNotFound, Type: openai.TypeRequest, Param: "model", Code: "model_not_found", Final: true,
			Message: fmt.Sprintf("the model %q does not exist, or the key may not call it: GET %s/models lists those that it may call", name, openAIPath),
		}
	}
	return model, nil
}

// forwards returns the handler of a route whose requests are forwarded. Ids of its answers begin with prefix. durable reports whether its calls
// are made by a workflow, unless the caller's key has direct ones.
func (s *server) forwards(parse func([]byte) (*openai.Request, error), prefix string, durable bool) func(echo.Context, modelCaller) error {
	return func(c echo.Context, caller modelCaller) error {
		body, free, err := s.readOpenAIBody(c)
		if err != nil {
			return err
		}
		defer free()
		request, err := parse(body)
		if err != nil {
			return err
		}
		call, err := s.modelCall(caller, request, berth.NewID(prefix))
		if err != nil {
			return err
		}
		if !durable || caller.key.Durability != berth.DurabilityDurable { // that of a user has none
			return s.answerCall(c, call.Limits, request.Stream, nil, func(ctx context.Context, client gateway.Client) error {
				return s.Gateway.Make(ctx, call, client)
			})
		}
		repeated, err := repetition(c.Request().Header)
		if err != nil {
			return err
		}
		durable := s.durableCall(c, caller, call, repeated, body)
		durable.Stream, durable.IDPrefix = request.Stream, prefix
		return s.answerCall(c, call.Limits, request.Stream, nil, func(ctx context.Context, client gateway.Client) error {
			return s.Gateway.MakeDurable(ctx, durable, client)
		})
	}
}

// durableCall completes what a client repeats to a request for a durable call.
func (s *server) durableCall(c echo.Context, caller modelCaller, call gateway.Call, r gateway.Request, body []byte) gateway.Request {
	cl := callOf(c.Request().Context())
	r.Call, r.Body, r.RequestID, r.TraceID, r.Retention = call, body, cl.requestID, cl.traceID, caller.key.Retention
	return r
}

// headerRetries is the number of times that an official client has sent the request before.
const (
	headerRetries = "X-Stainless-Retry-Count"
	headerKey     = "Idempotency-Key"
)

// repetition returns by what a request says that it repeats another one.
func repetition(h http.Header) (r gateway.Request, err error) {
	r.Key = h.Get(headerKey)
	if len(r.Key) > maxIdempotencyKey {
		return r, errorIn(headerKey, berth.CodeInvalid, "must have at most %d bytes", maxIdempotencyKey)
	}
	// Other clients may send anything in the other field: it is only a hint.
	if n, err := strconv.Atoi(h.Get(headerRetries)); err == nil && n > 0 {
		r.Attempts = n
	}
	return r, nil
}

// modelCall returns the call of a request.
func (s *server) modelCall(caller modelCaller, r *openai.Request, id string) (gateway.Call, error) {
	models := s.catalog()
	model, err := s.calledModel(models, caller, r.Model)
	if err != nil {
		return gateway.Call{}, err
	}
	excluded, err := r.Check(model)
	if err != nil {
		return gateway.Call{}, err
	}
	queue, tier, err := serviceQueue(models, caller, r.ServiceTier)
	if err != nil {
		return gateway.Call{}, err
	}
	shown := llm.Shown{ID: id, Created: s.Clock().Unix()}
	if r.ServiceTier != "" {
		shown.ServiceTier = tier
	}
	limits, group := caller.limits, caller.group
	if caller.key.ID != "" {
		group = caller.key.Group(r.EndUser)
	}
	limits.Queue = cmp.Or(models.MaxTasks(queue), s.Config.Admission.Queue)
	return gateway.Call{
		ID: id, KeyID: caller.key.ID, UserID: caller.userID, Group: group, Queue: queue, ServiceID: openAIService,
		Limits: limits, LLM: r.Call(model.Name, shown), Excluded: excluded, Conversation: conversationOf(caller, r), Wait: s.Config.CallWait,
	}, nil
}

// conversationOf returns what calls have in common that should use the same upstream, whose provider has the beginning of their prompts cached.
func conversationOf(m modelCaller, r *openai.Request) string {
	return m.userID + "/" + cmp.Or(r.CacheKey, r.EndUser)
}

// serviceQueue returns the queue for a service tier, and the tier that the call gets.
func serviceQueue(models *llm.Catalog, m modelCaller, tier string) (berth.Queue, string, error) {
	queue, used, ok := models.ServiceQueue(tier)
	if !ok {
		return "", "", openai.Invalid("service_tier", "invalid_value", "must be one of %s", strings.Join(llm.ServiceTiers(), ", "))
	}
	if used != llm.TierDefault && !m.key.AllowsTier(used) {
		queue, used, _ = models.ServiceQueue(llm.TierDefault)
	}
	return queue, used, nil
}

// readOpenAIBody reads the body of a request. free is called when it is not needed any more.
func (s *server) readOpenAIBody(c echo.Context) (body []byte, free func(), err error) {
	req := c.Request()
	if encoding := req.Header.Get(echo.HeaderContentEncoding); encoding != "" && encoding != "identity" {
		return nil, nil, errorIn(echo.HeaderContentEncoding, berth.CodeUnsupportedMedia, "the encoding %s is not supported: send the body without one", encoding)
	}
	size := req.ContentLength
	if size > openai.MaxBody {
		return nil, nil, exceeds("", openai.MaxBody)
	}
	if size < 0 {
		size = openai.MaxBody
	}
	if !s.received.TryAcquire(size) {
		return nil, nil, &RetryError{berth.Errorf(berth.CodeUnavailable, "this process has too many large requests; retry later"), 5 * time.Second}
	}
	free = func() { s.received.Release(size) }
	rc := http.NewResponseController(c.Response())
	// only writers of tests have no deadlines
	_ = rc.SetReadDeadline(time.Now().Add(openAIBodyTimes * s.Config.BodyTimeout))
	body, err = io.ReadAll(io.LimitReader(req.Body, openai.MaxBody+1))
	switch {
	case err != nil:
		err = bodyError(err)
	case len(body) > openai.MaxBody:
		err = exceeds("", openai.MaxBody)
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	_ = rc.SetReadDeadline(time.Time{})
	return body, free, nil
}

func (s *server) listOpenAIModels(c echo.Context, m modelCaller) error {
	list := openai.ModelList{}
	for _, model := range s.catalog().Models() {
		if m.key.Allows(model.Name) {
			list = append(list, modelView(model, model.Name))
			for _, alias := range model.Aliases {
				list = append(list, modelView(model, alias))
			}
		}
	}
	return c.JSON(http.StatusOK, list)
}

func (s *server) getOpenAIModel(c echo.Context, m modelCaller) error {
	model, err := s.calledModel(s.catalog(), m, c.Param("model"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, modelView(model, c.Param("model")))
}

func modelView(m llm.Model, name string) openai.Model {
	return openai.Model{ID: name, OwnedBy: strings.Join(m.Providers(), ", ")}
}

// ofOpenAI reports whether a request is for a route of OpenAI's protocol.
func ofOpenAI(path string) bool { return path == "/openai" || strings.HasPrefix(path, "/openai/") }

// otherResponses reports whether a path is none of a response, because what would be its id is none: OpenAI has routes such as /responses/compact there.
func otherResponses(path string) bool {
	id, ok := strings.CutPrefix(path, openAIPath+"/responses/")
	return ok && !strings.HasPrefix(id, berth.ResponseIDPrefix)
}

// meantForOpenAI reports whether a request for an unknown path is that of a client whose base URL lacks openAIPath.
func meantForOpenAI(path string) bool {
	return slices.ContainsFunc([]string{"/chat/completions", "/completions", "/embeddings", "/responses"}, func(end string) bool {
		return strings.HasSuffix(path, end)
	})
}

// openAIError returns what a client of the protocol reads for an error.
func (s *server) openAIError(err error, requestID string) *openai.Error {
	var own *openai.Error
	var call *llm.CallError
	var refused *gateway.Refusal
	var known *berth.Error
	var later *RetryError
	switch {
	case errors.As(err, &own), errors.As(err, &call), errors.As(err, &known) && !errors.As(err, &later):
		return openai.ErrorOf(err)
	case errors.As(err, &refused):
		return refusedCall(refused)
	case errors.Is(err, gateway.ErrWaitedTooLong):
		return &openai.Error{
			Status: http.StatusServiceUnavailable, Type: openai.TypeServer, Code: "server_is_overloaded", RetryAfter: unknownRetry,
			Message: fmt.Sprintf("no slot of the model was free within %s; retry later", s.Config.CallWait),
		}
	}
	p := problemOf(err, requestID)
	out := openai.ErrorOf(&berth.Error{Code: p.Code, Message: p.Detail, Field: p.Field})
	if p.RetryAfter > 0 {
		out.RetryAfter = time.Duration(p.RetryAfter) * time.Second
	}
	if he := (*echo.HTTPError)(nil); errors.As(err, &he) && he.Code < http.StatusInternalServerError {
		out.Status = he.Code
	}
	return out
}

// refusedCall returns the error of a call that was not admitted.
func refusedCall(r *gateway.Refusal) *openai.Error {
	out := &openai.Error{Status: http.StatusTooManyRequests, Type: openai.TypeLimit, Code: "rate_limit_exceeded", RetryAfter: retryIn(r.Retry)}
	switch r.Code {
	case lua.TaskRateLimited:
		out.RetryAfter = r.Retry
		out.Message = fmt.Sprintf("more than %s in a minute; retry in %s", counted(r.Limits.Rate, "request", "requests"), shortTime(r.Retry))
	case lua.TaskTokensLimited:
		out.Type, out.RetryAfter = openai.TypeTokens, r.Retry
		out.Message = fmt.Sprintf("more than %s in a minute; retry in %s", counted(r.Limits.Tokens, "token", "tokens"), shortTime(r.Retry))
	case lua.TaskServiceFull:
		out.Message = fmt.Sprintf("%s unfinished, which is the limit; retry when one has finished", counted(r.Ahead, "call is", "calls are"))
	case lua.TaskTeamFull:
		out.Message = levelFull(counted(r.Ahead, "call or task", "calls and tasks"), "team", r.Group.Team, r.Ahead)
	case lua.TaskAppFull:
		out.Message = levelFull(counted(r.Ahead, "call or task", "calls and tasks"), "application", r.Group.App, r.Ahead)
	default:
		out.Message = fmt.Sprintf("queue %s is full with %s; retry later", r.Queue, counted(r.Ahead, "call or task", "calls and tasks"))
	}
	return out
}

// shortTime returns a time as the protocol's headers state it, such as 1s or 6m0s.
func shortTime(d time.Duration) string {
	if d > 0 && d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// setLimits sets the headers about the limits of a key or user that has some.
func setLimits(h http.Header, reply lua.AdmitReply, limits lua.AdmissionLimits) {
	for _, l := range []struct {
		name  string
		limit int
		state lua.RateState
	}{{"requests", limits.Rate, reply.Rate}, {"tokens", limits.Tokens, reply.Tokens}} {
		if l.limit > 0 {
			h.Set("X-Ratelimit-Limit-"+l.name, strconv.Itoa(l.limit))
			h.Set("X-Ratelimit-Remaining-"+l.name, strconv.Itoa(l.state.Left))
			h.Set("X-Ratelimit-Reset-"+l.name, shortTime(l.state.Reset))
		}
	}
}

// failOpenAI responds with an error of the protocol.
func (s *server) failOpenAI(err error, c echo.Context) {
	cl := callOf(c.Request().Context())
	out := s.openAIError(err, cl.requestID)
	if refused := (*gateway.Refusal)(nil); errors.As(err, &refused) {
		setLimits(c.Response().Header(), refused.AdmitReply, refused.Limits)
	}
	level := levelOf(berth.CodeOf(err), err)
	if out.Status < http.StatusInternalServerError { // errors of the protocol have no code of berth
		level = min(level, slog.LevelDebug)
	}
	s.log.Log(c.Request().Context(), level, "request failed", "requestId", cl.requestID, "status", out.Status, "code", out.Code, "error", err)
	out.SetHeader(c.Response().Header())
	body := out.Body()
	c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
	// The call may have waited for longer than a response may take. Only writers of tests have no deadlines.
	_ = http.NewResponseController(c.Response().Writer).SetWriteDeadline(time.Now().Add(writeTimeout))
	if werr := c.Blob(out.Status, echo.MIMEApplicationJSON, body); werr != nil {
		s.log.DebugContext(c.Request().Context(), "error not sent", "error", werr)
	}
}
