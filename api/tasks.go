package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/client"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/lua"
	"berth/workflows"
)

type taskInput struct {
	ID     string `path:"id" pattern:"^[A-Za-z0-9_.@-]{1,128}$"`
	UserID string `query:"userId" maxLength:"255" doc:"Owner of the task, for operators. Needed only if several users have a task with this id."`
}

type listInput struct {
	UserID   string           `query:"userId" maxLength:"255" doc:"List the tasks of this user, for operators. Default: your own."`
	AllUsers bool             `query:"allUsers" doc:"List the tasks of all users, for operators."`
	Status   berth.TaskStatus `query:"status" doc:"Only tasks with this status"`
	Template berth.Template   `query:"template" maxLength:"64" doc:"Only tasks of this template"`
	Service  string           `query:"serviceId" maxLength:"128" doc:"Only tasks of this service"`
	Team     string           `query:"teamId" maxLength:"128" doc:"Only tasks that count for this team"`
	Open     bool             `query:"open" doc:"Only tasks that have not ended"`
	Title    string           `query:"q" doc:"Only tasks whose title has these words in this order, whatever their case; at most 80 characters. Not together with allUsers."`
	From     time.Time        `query:"from" doc:"Only tasks accepted at or after this time"`
	To       time.Time        `query:"to" doc:"Only tasks accepted before this time"`

	Limit int `query:"limit" minimum:"1" maximum:"100" default:"20"`
	CursorParam
}

type listOutputBody struct {
	Tasks      []taskView `json:"tasks"`
	NextCursor string     `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

type cancelOutputBody struct {
	TaskID     string           `json:"taskId"`
	Status     berth.TaskStatus `json:"status" doc:"Status before the cancellation; the events report the end"`
	Cancelling bool             `json:"cancelling"`
}

type eraseOutputBody struct {
	TaskID        string           `json:"taskId"`
	Status        berth.TaskStatus `json:"status"`
	ContentErased bool             `json:"contentErased"`
}

func (s *server) taskRoutes() {
	s.submitRoute()
	register(s, "GET /v1/tasks/{id}", forUsers, s.getTask, op("get-task", "tasks", "Get a task's status and result"))
	register(s, "GET /v1/tasks", forUsers, s.listTasks, op("list-tasks", "tasks", "List your tasks, newest first, without results"))
	register(s, "DELETE /v1/tasks/{id}", forUsers, s.cancelTask, withStatus(http.StatusAccepted, op("cancel-task", "tasks",
		"Cancel a task",
		"Closing the event stream does not cancel a task, and cancelling it erases nothing. 409 when the task has ended.")))
	register(s, "DELETE /v1/tasks/{id}/content", forUsers, s.eraseTask, op("erase-task", "tasks", "Erase the texts of a task",
		"Erases its variables, outputs and result, except those that another of the user's tasks has, too. Status, usage and audit remain. ",
		"409 while the task runs. Its events are removed, too: a reader gets its end without the texts."))
}

func (s *server) getTask(ctx context.Context, in *taskInput) (*taskView, error) {
	t, err := s.taskOf(ctx, in.UserID, in.ID)
	if err != nil {
		return nil, err
	}
	assets, err := s.variableAssets(ctx, t)
	if err != nil {
		return nil, err
	}
	view := s.view(t, assets)
	s.describeTask(ctx, &view, t, assets)
	view.wait(t, s.waits(ctx, t)[t.Ref()])
	asset, erased, err := s.resultAsset(ctx, t)
	if err != nil {
		return nil, err
	}
	view.ContentErased = view.ContentErased || erased
	if view.Text, view.Result, err = berth.Result(asset); err != nil {
		return nil, berth.Errorf(berth.CodeInternal, "read the result").With(err)
	}
	finished, err := s.Ledger.FinishedSteps(ctx, t.Ref())
	if err != nil {
		return nil, err
	}
	for _, f := range finished {
		st := &view.Steps[f.Step]
		st.Provider, st.Upstream, st.FinishReason = f.Provider, f.Upstream, f.FinishReason
		if !f.Erased && t.ContentErasedAt.IsZero() {
			st.OutputAssetID = f.OutputAssetID
		}
		view.Simulated = view.Simulated || f.Provider == llm.LocalProvider
	}
	return &view, nil
}

// taskOf returns the caller's task with the id, or for an operator the task of any user. It does not reveal whether other
// users have a task with the id.
func (s *server) taskOf(ctx context.Context, userID, id string) (berth.Task, error) {
	p := callOf(ctx).user
	if err := checkUser(p, userID); err != nil {
		return berth.Task{}, err
	}
	t, err := s.Ledger.GetTask(ctx, berth.TaskRef{UserID: cmp.Or(userID, p.UserID), TaskID: id})
	if err == nil || userID != "" || !p.Operator() || berth.CodeOf(err) != berth.CodeNotFound {
		return t, err
	}
	found, err := s.Ledger.TasksByID(ctx, id, 2)
	switch {
	case err != nil:
		return berth.Task{}, err
	case len(found) == 0:
		return berth.Task{}, berth.Errorf(berth.CodeNotFound, "not found")
	case len(found) > 1:
		return berth.Task{}, errorIn("userId", berth.CodeConflict, "several users have a task with this id; add userId")
	default:
		return found[0], nil
	}
}

// checkUser returns an error unless the caller may name this user in a request.
func checkUser(p identity.Principal, userID string) error {
	if userID == "" || userID == p.UserID {
		return nil
	}
	if !p.Operator() {
		return &berth.Error{Code: berth.CodeForbidden, Field: "userId", Message: "must be your own id, or absent"}
	}
	return berth.ValidUserID("userId", userID)
}

func (s *server) listTasks(ctx context.Context, in *listInput) (*listOutputBody, error) {
	p := callOf(ctx).user
	if err := cmp.Or(checkUser(p, in.UserID), checkPeriod(in.From, in.To), optionalID("serviceId", in.Service), optionalID("teamId", in.Team), normalize("q", &in.Title, berth.MaxTaskTitle)); err != nil {
		return nil, err
	}
	q := ledger.TaskQuery{
		UserID: cmp.Or(in.UserID, p.UserID), Status: in.Status, Template: in.Template, Service: in.Service, Team: in.Team, Open: in.Open, Title: in.Title, From: in.From, To: in.To,
	}
	switch {
	case in.AllUsers && !p.Operator():
		return nil, &berth.Error{Code: berth.CodeForbidden, Field: "allUsers", Message: "is for operators"}
	case in.AllUsers && in.UserID != "":
		return nil, berth.Invalid("allUsers", "give userId or allUsers, not both")
	case in.AllUsers && in.Title != "":
		return nil, berth.Invalid("q", "finds tasks of one user; give userId in place of allUsers")
	case in.AllUsers:
		q.UserID = ""
	}
	tasks, next, err := s.Ledger.ListTasks(ctx, q, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	assets, err := s.variableAssets(ctx, tasks...)
	if err != nil {
		return nil, err
	}
	out := listOutputBody{Tasks: convert(tasks, func(t berth.Task) taskView { return s.view(t, assets) }), NextCursor: next}
	waits := s.waits(ctx, tasks...)
	for i, t := range tasks {
		out.Tasks[i].wait(t, waits[t.Ref()])
	}
	return &out, nil
}

// waits returns how long the tasks wait whose current step waits for its model. It is empty where Redis fails.
func (s *server) waits(ctx context.Context, tasks ...berth.Task) map[berth.TaskRef]*client.Waiting {
	var refs []berth.TaskRef
	var keys []lua.ModelWaiterKey
	for _, t := range tasks {
		if !t.Status.Final() {
			refs, keys = append(refs, t.Ref()), append(keys, lua.ModelWaiterOf(t.Ref(), t.Group, t.StepIndex, t.Steps[t.StepIndex]).Key())
		}
	}
	if len(keys) == 0 {
		return nil
	}
	found, err := s.Scripts.ReadPositions(ctx, keys)
	if err != nil {
		s.log.DebugContext(ctx, "waiting tasks not read", "requestId", callOf(ctx).requestID, "error", err)
		return nil
	}
	waits := map[berth.TaskRef]*client.Waiting{}
	for i, w := range found {
		if w.Position >= 0 {
			waits[refs[i]] = new(waitingOf(w))
		}
	}
	return waits
}

func (s *server) cancelTask(ctx context.Context, in *taskInput) (*cancelOutputBody, error) {
	t, err := s.taskOf(ctx, in.UserID, in.ID)
	if err != nil {
		return nil, err
	}
	if t.Status.Final() {
		return nil, alreadyEnded(t)
	}
	if err := s.Starter.CancelTask(ctx, t.Ref()); err != nil {
		// it may have ended meanwhile: then the row has the outcome
		if now, rerr := s.Ledger.GetTask(ctx, t.Ref()); rerr == nil && now.Status.Final() {
			return nil, alreadyEnded(now)
		}
		return nil, fmt.Errorf("cancel task %s: %w", t.ID, err)
	}
	return &cancelOutputBody{TaskID: t.ID, Status: t.Status, Cancelling: true}, nil
}

func (s *server) eraseTask(ctx context.Context, in *taskInput) (*eraseOutputBody, error) {
	t, err := s.taskOf(ctx, in.UserID, in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.eraseContent(ctx, t); err != nil {
		return nil, err
	}
	return &eraseOutputBody{TaskID: t.ID, Status: t.Status, ContentErased: true}, nil
}

// eraseContent erases the texts of a task that has ended, with its events.
func (s *server) eraseContent(ctx context.Context, t berth.Task) error {
	if err := s.Ledger.EraseTask(ctx, t.Ref()); err != nil {
		return err
	}
	return s.dropEvents(ctx, ledger.TaskStream{TaskRef: t.Ref(), ServiceID: t.ServiceID})
}

// dropEvents removes the events of an ended task, which have its texts, too, until their stream expires. Where Redis fails, the caller
// repeats the request.
func (s *server) dropEvents(ctx context.Context, t ledger.TaskStream) error {
	return fromRedis(s.Scripts.DropStream(ctx, lua.Channel{UserID: t.UserID, ServiceID: t.ServiceID, TaskID: t.TaskID}))
}

func alreadyEnded(t berth.Task) error {
	return berth.Errorf(berth.CodeConflict, "task already finished (status %s)", t.Status)
}

// resultAsset returns the result of a completed task, and the events of a response that has ended, however it did. The zero value for other tasks and for
// a result that was erased.
func (s *server) resultAsset(ctx context.Context, t berth.Task) (a berth.Asset, erased bool, err error) {
	if t.Status != berth.TaskCompleted && t.Response() == nil || t.ResultAssetID == "" || !t.ContentErasedAt.IsZero() {
		return berth.Asset{}, false, nil
	}
	a, err = s.Ledger.GetAsset(ctx, t.UserID, t.ResultAssetID)
	switch berth.CodeOf(err) {
	case berth.CodeErased:
		return berth.Asset{}, true, nil
	case berth.CodeNotFound: // data loss, not the caller's mistake
		return a, false, berth.Errorf(berth.CodeInternal, "the result of task %s", t.ID).With(err)
	default:
		return a, false, err
	}
}

// variableAssets returns the assets of the tasks' variables by their ids, without content.
func (s *server) variableAssets(ctx context.Context, tasks ...berth.Task) (map[string]berth.Asset, error) {
	var ids []string
	for _, t := range tasks {
		ids = slices.AppendSeq(ids, maps.Values(t.Variables))
	}
	slices.Sort(ids)
	return s.Ledger.DescribeAssets(ctx, slices.Compact(ids))
}

// describeTask adds what the task's version of its template states: the labels of its steps, and its variables in their order. Variables that are
// not known, because the version was removed, are the last.
func (s *server) describeTask(ctx context.Context, view *taskView, t berth.Task, assets map[string]berth.Asset) {
	names := make([]string, 0, len(t.Variables))
	if used, err := s.Templates.Version(ctx, t.Template, t.TemplateVersion); err == nil {
		for _, v := range used.Variables {
			names = append(names, v.Name)
		}
		for i := range view.Steps {
			if st, ok := used.Step(string(view.Steps[i].Name)); ok {
				view.Steps[i].Label = client.Labels(st.Label)
			}
		}
	}
	names = append(names, slices.Sorted(maps.Keys(t.Variables))...)
	for i, name := range names {
		id, given := t.Variables[name]
		if !given || slices.Contains(names[:i], name) {
			continue
		}
		in := client.TaskInput{Variable: name, AssetID: id, Erased: true}
		if a, ok := assets[id]; ok {
			in.Kind = assetKind(a.Kind)
			if a.ErasedAt.IsZero() && t.ContentErasedAt.IsZero() {
				in.Name, in.MediaType, in.Size, in.Erased = a.Name, a.MediaType, a.Size, false
			}
		}
		view.Inputs = append(view.Inputs, in)
	}
}

func (s *server) view(t berth.Task, assets map[string]berth.Asset) taskView {
	v := taskView{
		UserID: t.UserID, TaskRequest: t.TaskRequest, Variables: make(map[string]client.AssetVariable, len(t.Variables)), Title: t.Title, Price: t.Price, Metered: t.Metered, Status: t.Status, Downgraded: t.Tier == berth.TierFree, Steps: make([]client.TaskStep, 0, len(t.Steps)), StepIndex: t.StepIndex,
		Usage: t.Usage, FinishReason: t.FinishReason, PromptTruncated: t.PromptTruncated, Simulated: t.Simulated, PollAfterMs: milliseconds(pollAfter(t, client.Waiting{})),
		Links: client.TaskLinks{
			Self: taskPath(t.ID), Events: taskPath(t.ID) + "/events", Temporal: s.links(workflows.TaskWorkflowID(t.Ref())).Temporal,
		},
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, DeadlineAt: t.DeadlineAt, EndedAt: t.EndedAt,
		ContentErased: !t.ContentErasedAt.IsZero(),
	}
	for name, id := range t.Variables {
		ref := client.AssetRef(id)
		if a, ok := assets[id]; ok {
			ref.Kind = assetKind(a.Kind)
		}
		v.Variables[name] = ref
	}
	if r := t.Response(); r != nil {
		v.Replaces, v.ReplacedBy = r.Replaces, r.ReplacedBy
	}
	if t.ErrorCode != "" {
		v.Error = &client.TaskError{Code: t.ErrorCode, Message: t.ErrorMessage}
	}
	for i, st := range t.Steps {
		v.Steps = append(v.Steps, client.TaskStep{
			Name: st.Name, Mode: st.Mode, Queue: st.Queue, Model: st.Model, State: stepState(t, i), Status: st.Status,
		})
	}
	return v
}

func stepState(t berth.Task, i int) string {
	switch {
	case i < t.StepIndex || t.Status == berth.TaskCompleted:
		return "done"
	case i > t.StepIndex:
		return "waiting"
	case t.Status == berth.TaskFailed:
		return "failed"
	case t.Status == berth.TaskCancelled:
		return "cancelled"
	default:
		return "current"
	}
}

// wait adds that the current step waits for its model, nil unless it does.
func (v *taskView) wait(t berth.Task, w *client.Waiting) {
	if w != nil {
		v.Waiting, v.PollAfterMs = w, milliseconds(pollAfter(t, *w))
	}
}

// pollIntervals are the recommended times until the next poll, as the end nears.
var pollIntervals = []time.Duration{3 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second}

// pollAfter returns the recommended time until the next poll: the longer of that for the steps that are left and that for the wait of
// the current step. It is 0 for a task that has ended.
func pollAfter(t berth.Task, w client.Waiting) time.Duration {
	if t.Status.Final() {
		return 0
	}
	left := len(t.Steps) - t.StepIndex
	steps := min(max(left, 1), len(pollIntervals)-1)
	if t.Status == berth.TaskStreaming || left <= 1 && t.Fence > int64(t.StepIndex) { // the last call runs
		steps = 0
	}
	return pollIntervals[max(steps, waitSteps(w))]
}

// waitSteps returns the index in pollIntervals for a wait: by its estimate, otherwise by the position.
func waitSteps(w client.Waiting) int {
	among := func(n int, bounds ...int) int {
		i, found := slices.BinarySearch(bounds, n)
		if found {
			i++
		}
		return i
	}
	switch {
	case w.Paused:
		return len(pollIntervals) - 1
	case w.EtaSeconds != nil:
		return among(*w.EtaSeconds, 6, 15, 40) // a poll is at most half of the wait late
	case w.Position != nil:
		return among(*w.Position, 1, 5, 20)
	}
	return 0
}

// links returns the links to a workflow, none without the address of the Temporal UI.
func (s *server) links(workflowID string) client.WorkflowLinks {
	if s.Config.TemporalUIURL == "" {
		return client.WorkflowLinks{}
	}
	return client.WorkflowLinks{Temporal: strings.TrimRight(s.Config.TemporalUIURL, "/") + "/namespaces/" +
		url.PathEscape(s.Config.TemporalNamespace) + "/workflows/" + url.PathEscape(workflowID)}
}

func (s *server) schemaOf(v any) *huma.Schema {
	t := reflect.TypeOf(v)
	return s.doc.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}
