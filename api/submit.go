package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/metrics"
	"berth/internal/template"
	"berth/lua"
)

// submitInput is a request for a task.
type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Requests of one user with the same key and body create one task. Not together with taskId, which identifies the task as well. Without either, equal requests within a window (10 minutes by default) create one task."`
	Body           submitBody
}

type submitBody struct {
	TaskID    string              `json:"taskId,omitempty" maxLength:"128" doc:"Client-chosen id, unique among your tasks; generated when omitted"`
	ServiceID string              `json:"serviceId" maxLength:"128" doc:"Service that the task belongs to"`
	Template  berth.Template      `json:"template" maxLength:"64" doc:"Name of a template, see GET /v1/templates"`
	Version   string              `json:"templateVersion,omitempty" maxLength:"64" doc:"A stored version of the template, active or not, which only operators may choose: it is tried before new tasks use it"`
	Title     string              `json:"title,omitempty" doc:"Names the task in lists, at most 80 characters. Default: the name of the first uploaded file, else the first words of the first text"`
	EndUser   string              `json:"endUser,omitempty" maxLength:"255" doc:"User of the application that the request counts for: end users of an application share what a user of it gets. Only where the request belongs to an application: one that the token or the service names"`
	Locale    string              `json:"locale,omitempty" doc:"Language of the prompts and the answer: one of the template, or a tag near one, such as en-US for en. Default: the first of the template"`
	Variables map[string]Variable `json:"variables" maxProperties:"50" doc:"Inputs of the template, see GET /v1/templates"`
}

type submitOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     submitAnswer
}

func (s *server) submitRoute() {
	replay := s.alternative("200", "The task had already been accepted", submitAnswer{})
	registerOutput(s, "POST /v1/tasks", forUser, s.submit, withStatus(http.StatusAccepted, withResponses(replay, op(
		"submit-task", "tasks", "Submit a task", "Returns immediately. The task runs whether or not a client is connected. Every response to an authenticated user has "+
			"the fields `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10), unless the rate is not limited. "+
			"Other routes have neither. `t` is absent from `RateLimit` if the response has an earlier `Retry-After`."))))
}

func (s *server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	cl := callOf(ctx)
	b := in.Body
	if err := cmp.Or(optionalID("taskId", b.TaskID), berth.ValidID("serviceId", b.ServiceID), normalize("title", &b.Title, berth.MaxTaskTitle)); err != nil {
		return nil, err
	}
	if b.TaskID != "" && in.IdempotencyKey != "" {
		return nil, berth.Invalid("Idempotency-Key", "identifies the task, as taskId does; give one of them")
	}
	switch b.ServiceID {
	case lua.SessionService, lua.ConferenceService, lua.OperatorService: // their streams are not of tasks
		return nil, berth.Invalid("serviceId", "must not be %q", b.ServiceID)
	}
	t, err := s.submitted(ctx, b)
	if err != nil {
		return nil, err
	}
	locale, err := localeOf(t, b.Locale)
	if err != nil {
		return nil, err
	}
	vals, err := s.checkValues(ctx, cl.user.UserID, t, b.Variables)
	if err != nil {
		return nil, err
	}
	vals.title = b.Title
	group, limits, err := s.groupOf(ctx, b.ServiceID, b.EndUser)
	if err != nil {
		return nil, err
	}
	plan := berth.TaskPlan{
		TaskRequest: berth.TaskRequest{
			ServiceID: b.ServiceID, Group: group, Template: t.Name, TemplateVersion: t.Version, Locale: locale,
			Variables: vals.ids(cl.user.UserID), RequestID: cl.requestID, TraceID: cl.traceID,
		},
		UserID: cl.user.UserID, TitleAsset: vals.titleAsset(cl.user.UserID, t),
	}
	models := s.catalog()
	if err := s.propose(ctx, models, &plan, t, vals); err != nil {
		return nil, err
	}
	if err := models.CheckContext(t, plan.Steps, vals.all()); err != nil {
		return nil, err
	}
	// Texts are compared by content, which their asset ids represent. A request that names its task is the same one after the template has
	// changed.
	parts := []any{plan.UserID, plan.ServiceID, plan.Template, plan.Locale, plan.Variables}
	if b.Title != "" {
		parts = append(parts, b.Title)
	}
	if b.EndUser != "" {
		parts = append(parts, "endUser", b.EndUser)
	}
	if b.Version != "" {
		parts = append(parts, "templateVersion", b.Version)
	}
	plan.RequestHash, err = hashRequest(parts...)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, submission{plan: plan, vals: vals, levels: limits, clientID: b.TaskID, key: in.IdempotencyKey})
}

// submitted returns the template of a request: in the version of new tasks, or in that which an operator tries.
func (s *server) submitted(ctx context.Context, b submitBody) (*template.Template, error) {
	if b.Version == "" {
		return s.Templates.Template(b.Template)
	}
	if !callOf(ctx).user.Operator() {
		return nil, &berth.Error{Code: berth.CodeForbidden, Field: "templateVersion", Message: "is for operators; leave it out for the active version"}
	}
	t, err := s.storedTemplate(ctx, b.Template, b.Version)
	if berth.CodeOf(err) == berth.CodeNotFound {
		return nil, berth.Invalid("templateVersion", "template %q has no version %q; GET /v1/templates/{name}/versions lists them", b.Template, b.Version)
	}
	return t, err
}

// localeOf returns the language of a template that serves the wanted one, the preferred one for an empty one. Of a template without languages,
// a task has any, for its progress messages.
func localeOf(t *template.Template, wanted string) (berth.Locale, error) {
	switch {
	case wanted == "" && len(t.Locales) == 0:
		return berth.LocaleEN, nil
	case wanted == "":
		return t.Locales[0], nil
	}
	locale, err := berth.ParseLocale("locale", wanted)
	if err != nil || len(t.Locales) == 0 {
		return locale, err
	}
	nearest, ok := berth.NearestLocale(t.Locales, locale)
	if !ok {
		return "", berth.Invalid("locale", "%s is not a language of %s, which has %s", locale, t.Name, strings.Join(convert(t.Locales, func(l berth.Locale) string { return string(l) }), ", "))
	}
	return nearest, nil
}

// propose sets the tier, price and steps of a plan by the user's balance. The charge at acceptance decides.
func (s *server) propose(ctx context.Context, models *llm.Catalog, p *berth.TaskPlan, t *template.Template, vals values) error {
	credits, err := s.Ledger.Credits(ctx, p.UserID)
	if err != nil {
		return err
	}
	price := models.Price(t, berth.TierPaid)
	steps, unplanned := models.Plan(t, berth.TierPaid, vals.kinds)
	if p.Tier, p.Price, p.Metered = berth.TierPaid, price.Credits, price.Metered; p.Metered {
		p.Price = models.Reserve(t, steps, vals.all())
	}
	if credits < p.Price {
		p.Tier, p.Price, p.Metered = berth.TierFree, 0, false
		steps, unplanned = models.Plan(t, berth.TierFree, vals.kinds)
	}
	if p.Steps, callOf(ctx).tier = steps, p.Tier; unplanned == nil && p.Price > 0 {
		p.FreeSteps, unplanned = models.Plan(t, berth.TierFree, vals.kinds)
	}
	return unplanned
}

// submission is a checked request with the names by which its client repeats it.
type submission struct {
	plan     berth.TaskPlan
	vals     values
	levels   levelLimits
	clientID string // of the task; it identifies the request in place of a key
	key      string
}

// maxOvertaken bounds how often a submission is identified again because the task that it found failed meanwhile.
const maxOvertaken = 5

// accept starts the task, or returns the one that the same request started before.
func (s *server) accept(ctx context.Context, sub submission) (*submitOutput, error) {
	for range maxOvertaken {
		task, replayed, err := s.identify(ctx, &sub)
		if err != nil {
			return nil, err
		}
		if replayed && task.Status == berth.TaskPending && task.RequestHash == sub.plan.RequestHash {
			if task, replayed, err = s.settled(ctx, sub.plan); err != nil {
				return nil, err
			}
		}
		if !replayed {
			if task, replayed, err = s.start(ctx, sub); err != nil {
				return nil, err
			}
		}
		switch {
		case task.RequestHash != sub.plan.RequestHash:
			return nil, sub.mismatch()
		case !replayed:
			return s.accepted(ctx, task), nil
		case !task.Status.Repeatable():
			return s.replay(ctx, task, cmp.Or(sub.clientID, sub.key, sub.plan.RequestHash))
		case sub.clientID != "":
			return nil, errorIn("taskId", berth.CodeConflict, "task already finished (status %s); submit with another id", task.Status)
		}
	}
	return nil, berth.Errorf(berth.CodeUnavailable, "tasks of this request fail while it is submitted; retry later")
}

// settled returns a task whose first step has not begun once it is accepted: it has a row before, which is removed if it is refused.
func (s *server) settled(ctx context.Context, p berth.TaskPlan) (task berth.Task, known bool, err error) {
	if _, _, err := s.Starter.SubmitTask(ctx, p); err != nil {
		return berth.Task{}, false, fmt.Errorf("submit task %s again: %w", p.ID, err)
	}
	return s.known(ctx, p)
}

// start stores the texts and starts the task. The question whether the models are served needs Redis, so without it nothing is
// written.
func (s *server) start(ctx context.Context, sub submission) (berth.Task, bool, error) {
	err := s.checkServed(ctx, sub.plan.Steps)
	if err == nil {
		err = s.admitTask(ctx, sub.plan, sub.levels)
	}
	if err != nil {
		metrics.Refusals.Add(ctx, 1, metrics.With(
			metrics.Code.String(string(describe(err).Code)), metrics.Queue.String(string(sub.plan.Steps[0].Queue))))
		return berth.Task{}, false, err
	}
	if err := s.store(ctx, sub.plan.UserID, sub.vals); err != nil {
		return berth.Task{}, false, err
	}
	task, replayed, err := s.Starter.SubmitTask(ctx, sub.plan)
	if err != nil {
		return berth.Task{}, false, fmt.Errorf("submit task %s: %w", sub.plan.ID, err)
	}
	return task, replayed, nil
}

// identify sets the id of the task: the client's, or one derived from the key and the number of tasks that it has had.
// Without a key of the client, the request itself is the key, within a window. known reports that a task has the id.
func (s *server) identify(ctx context.Context, sub *submission) (task berth.Task, known bool, err error) {
	p := &sub.plan
	if p.ID = sub.clientID; p.ID != "" {
		return s.known(ctx, *p)
	}
	p.Key = berth.DerivedID("r_", p.RequestHash, p.TemplateVersion)
	if sub.key != "" {
		p.Key = berth.DerivedID("k_", sub.key)
	}
	newest, found, err := berth.Found(s.Ledger.FindSubmission(ctx, p.UserID, p.Key))
	if err != nil {
		return berth.Task{}, false, err
	}
	if found && newest.RequestHash != p.RequestHash {
		return berth.Task{}, false, sub.mismatch()
	}
	// The key of a client means one task. Where the request is the key, it is a new one after its texts were erased.
	expired := sub.key == "" && (newest.Erased || s.Clock().Sub(newest.AcceptedAt) >= s.Config.ReplayWindow)
	p.Number, known = newest.Next(expired)
	p.ID = p.KeyedID("t_")
	if !known {
		return berth.Task{}, false, nil
	}
	return s.known(ctx, *p)
}

// known returns the task that has the id of the plan, if there is one.
func (s *server) known(ctx context.Context, p berth.TaskPlan) (berth.Task, bool, error) {
	return berth.Found(s.Ledger.GetTask(ctx, p.Ref()))
}

// accepted returns an accepted task with an estimate of its wait.
func (s *server) accepted(ctx context.Context, t berth.Task) *submitOutput {
	wait, err := s.estimate(ctx, t.TaskPlan, t.StepIndex)
	if err != nil { // the task runs
		s.log.DebugContext(ctx, "wait not estimated", "requestId", callOf(ctx).requestID, "error", err)
		return answer(http.StatusAccepted, t, client.Waiting{})
	}
	return answer(http.StatusAccepted, t, waitingOf(wait))
}

// estimate estimates how long a step of a task waits for its model.
func (s *server) estimate(ctx context.Context, p berth.TaskPlan, index int) (lua.Wait, error) {
	return s.Scripts.EstimateWait(ctx, lua.ModelWaiterOf(p.Ref(), p.Group, index, p.Steps[index]), s.Routing.Current().LimitsOf(p.Steps[index].Model, 0))
}

// waitingOf returns an estimate without what is not known.
func waitingOf(w lua.Wait) client.Waiting {
	out := client.Waiting{Paused: w.Paused}
	if w.Upstreams != "" {
		out.Upstreams = strings.Split(w.Upstreams, ",")
	}
	if w.Position >= 0 {
		out.Position = &w.Position
	}
	if w.Time >= 0 {
		out.EtaSeconds = new(seconds(w.Time))
	}
	return out
}

// replay returns a task that was accepted before, and records that it was submitted again.
func (s *server) replay(ctx context.Context, t berth.Task, key string) (*submitOutput, error) {
	err := s.auditRepeated(ctx, ledger.AuditEntry{
		Event: ledger.AuditReplay, UserID: t.UserID, TaskID: t.ID, ServiceID: t.ServiceID, Queue: t.Steps[t.StepIndex].Queue,
	}, t.ID)
	if err != nil {
		return nil, err
	}
	var waiting client.Waiting
	if w := s.waits(ctx, t)[t.Ref()]; w != nil {
		waiting = *w
	}
	out := answer(http.StatusOK, t, waiting)
	out.Body.Replay, out.Body.IdemKey = true, key
	return out, nil
}

func answer(status int, t berth.Task, w client.Waiting) *submitOutput {
	step := t.Steps[t.StepIndex]
	return &submitOutput{Status: status, Location: location(taskPath(t.ID)), Body: submitAnswer{
		TaskID: t.ID, Status: t.Status, Queue: step.Queue, Model: step.Model, Tier: t.Tier, Downgraded: t.Tier == berth.TierFree,
		PollAfterMs: milliseconds(pollAfter(t, w)), EventsURL: taskPath(t.ID) + "/events", Waiting: w,
	}}
}

func (sub submission) mismatch() error {
	field := "Idempotency-Key"
	if sub.clientID != "" {
		field = "taskId"
	}
	return errorIn(field, berth.CodeIdempotencyMismatch, "already used for a different request")
}

func taskPath(id string) string { return "/v1/tasks/" + id }

func milliseconds(d time.Duration) int { return int(d.Milliseconds()) }
