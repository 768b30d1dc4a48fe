package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/lua"
)

// maxWaitingUsers is the number of users that the state of a model or a queue lists; usersRead is how many are read for it.
const (
	maxWaitingUsers = 20
	usersRead       = 100
)

// The largest limits of a model but its cap, as in the schema of the routing file.
const (
	maxRPM = 1_000_000
	maxTPM = 1_000_000_000
)

type modelsOutputBody struct {
	Models []client.Model `json:"models"`
}

type queuesOutputBody struct {
	Queues []client.Queue `json:"queues"`
}

// limitChange is the new value of a limit. null restores the configured one; an absent field changes nothing.
type limitChange struct {
	present bool
	value   *int
}

// UnmarshalJSON implements json.Unmarshaler. It is not called for an absent field.
func (c *limitChange) UnmarshalJSON(b []byte) error {
	c.present = true
	return json.Unmarshal(b, &c.value)
}

// Schema returns an integer or null.
func (limitChange) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Nullable: true}
}

func (c limitChange) apply(to **int) {
	if c.present {
		*to = c.value
	}
}

// check returns an error that names the field of a value out of range.
func (c limitChange) check(field string, least, greatest int) error {
	if c.value != nil && (*c.value < least || *c.value > greatest) {
		return berth.Invalid(field, "must be null or a number from %d to %d", least, greatest)
	}
	return nil
}

type modelChange struct {
	Cap    limitChange `json:"cap" required:"false" doc:"Maximum number of concurrent calls, 1 to 10000; null: as configured. A lower cap revokes nothing, and an automatic one becomes fixed"`
	RPM    limitChange `json:"rpm" required:"false" doc:"Maximum number of calls per minute, 0 for no limit; null: as configured"`
	TPM    limitChange `json:"tpm" required:"false" doc:"Maximum number of tokens per minute, 0 for no limit; null: as configured"`
	Paused *bool       `json:"paused,omitempty" doc:"true: no call starts until a PATCH with false, which also ends a pause that the provider caused"`
	Reason string      `json:"reason,omitempty" doc:"Reason of the pause: one line of at most 500 characters"`
}

type modelInput struct {
	Name string `path:"name" doc:"Name of the model in the routing file"`
	Body modelChange
}

type upstreamInput struct {
	Name     string `path:"name" doc:"Name of the model in the routing file"`
	Upstream string `path:"upstream" doc:"Name of the upstream; its provider, if the routing file gives it none"`
	Body     modelChange
}

func (s *server) modelRoutes() {
	register(s, "GET /v1/models", forOperator, s.listModels, op("list-models", "models", "List the models with their limits, slots and waiting calls"))
	register(s, "GET /v1/models/{name}/levels", forOperator, s.getLevels, op("get-model-levels", "models",
		"Get what uses a model and what waits for it on each level, and why it waits",
		"Levels are queues, teams, applications, users and end users: of each the largest, whatever the number of waiting calls."))
	register(s, "GET /v1/queues", forOperator, s.listQueues, op("list-queues", "models", "List the queues with their slots and waiting calls"))
	register(s, "PATCH /v1/models/{name}", forOperator, s.patchModel, op("patch-model", "models", "Change the limits of a model, pause or resume it",
		"Fields that are absent keep their values. The change applies to the next call of any process, and running calls continue. "+
			"It is kept in the database, and a Redis that lost its data gets it back. Limits of a model with several upstreams are set for each. "+
			"Resuming a model also ends the pauses of its upstreams."))
	register(s, "PATCH /v1/models/{name}/upstreams/{upstream}", forOperator, s.patchUpstream, op("patch-upstream", "models", "Change the limits of an upstream, pause or resume it",
		"As for a model. While an upstream is paused, the others of the model take its calls."))
}

func (s *server) listModels(ctx context.Context, _ *struct{}) (*modelsOutputBody, error) {
	out := &modelsOutputBody{Models: []client.Model{}}
	models, routed, now := s.neededModels(), s.routed(), s.Routing.Current()
	services, err := s.modelServices(ctx, models)
	if err != nil {
		return nil, err
	}
	for _, m := range models {
		v, err := s.model(ctx, m, routed)
		if err != nil {
			return nil, err
		}
		v.ModelService, v.Tasks = services[m.Name], now.Former()[m.Name].Tasks+now.Unknown()[m.Name]
		out.Models = append(out.Models, *v)
	}
	return out, nil
}

// modelRoom is the state of a model's waiting room. unkeyed are the upstreams that no process can call, for which keys are missing.
type modelRoom struct {
	lua.Room

	unkeyed []string
}

// room reads the slots and waiting calls of a model.
func (s *server) room(ctx context.Context, m llm.Model) (r modelRoom, err error) {
	r.Room, err = s.Scripts.ReadRoom(ctx, m.Name, s.Routing.Current().LimitsOf(m.Name, 0), usersRead)
	if err == nil {
		r.unkeyed, err = s.unkeyed(ctx, m.Name)
	}
	return r, fromRedis(err)
}

// unkeyed returns the upstreams of a model that neither this process nor a worker can call.
func (s *server) unkeyed(ctx context.Context, model string) (names []string, err error) {
	own := s.Routing.Of(model).Unkeyed(model)
	if len(own) == 0 {
		return nil, nil
	}
	missing, err := s.Scripts.CheckPollers(ctx, convert(own, func(name string) string { return lua.PolledUpstream(model, name) }))
	for _, name := range own {
		if slices.Contains(missing, lua.PolledUpstream(model, name)) {
			names = append(names, name)
		}
	}
	return names, err
}

// model reads the state of a model.
func (s *server) model(ctx context.Context, m llm.Model, routed map[llm.Use]bool) (*client.Model, error) {
	room, err := s.room(ctx, m)
	if err != nil {
		return nil, err
	}
	v := &client.Model{
		Name: m.Name, Provider: strings.Join(m.Providers(), ", "), ModelLimits: room.limits(),
		Configured: client.ModelLimits{Cap: m.Cap, RPM: m.RPM, TPM: m.TPM}, Upstreams: upstreams(m, room), InUse: room.InUse, Waiting: room.Waiting, NextGrantMs: nextGrant(room.Room),
		UnknownUpstreams: room.Unknown, Queues: []client.ModelQueue{}, Users: waitingUsers(m.Name, room.Users, ""),
	}
	v.ModelPause = pauseOf(room.Room)
	longest := time.Duration(-1)
	for _, q := range room.Queues {
		if serves(q, m.Name, routed) {
			longest = max(longest, q.Wait)
			v.Queues = append(v.Queues, client.ModelQueue{Queue: q.Queue, Weight: q.Weight, InUse: q.InUse, Waiting: q.Waiting})
		}
	}
	v.EtaSeconds = eta(longest)
	return v, nil
}

// limits returns the limits of the upstreams together, without those that lack a key. 0 requests or tokens per minute of one are no limit.
func (r modelRoom) limits() (l client.ModelLimits) {
	unlimited := client.ModelLimits{}
	for _, u := range r.Upstreams {
		if slices.Contains(r.unkeyed, u.Name) {
			continue
		}
		l.Cap, l.RPM, l.TPM = l.Cap+u.Cap, l.RPM+u.RPM, l.TPM+u.TPM
		if u.RPM == 0 {
			unlimited.RPM = 1
		}
		if u.TPM == 0 {
			unlimited.TPM = 1
		}
	}
	return client.ModelLimits{Cap: l.Cap, RPM: l.RPM * (1 - unlimited.RPM), TPM: l.TPM * (1 - unlimited.TPM)}
}

// upstreams returns the state of a model's upstreams.
func upstreams(m llm.Model, room modelRoom) []client.Upstream {
	out := []client.Upstream{}
	for _, use := range room.Upstreams {
		u, _ := m.Upstream(use.Name) // without configuration, if the routing file of another process has it
		v := client.Upstream{
			Name: use.Name, Provider: u.Provider, Rank: u.Rank, ModelLimits: client.ModelLimits{Cap: use.Cap, RPM: use.RPM, TPM: use.TPM},
			Configured: client.ModelLimits{Cap: u.Cap, RPM: u.RPM, TPM: u.TPM}, Auto: use.Learned, InUse: use.InUse, ModelPause: pauseOfUpstream(use),
			ProviderCap: use.ProviderCap, ProviderInUse: use.ProviderInUse, NoKey: slices.Contains(room.unkeyed, use.Name),
		}
		if use.Learned {
			v.Min = u.Min
		}
		if !use.Paused {
			v.NextGrantMs = ms(use.Stopped)
		}
		out = append(out, v)
	}
	return out
}

func pauseOfUpstream(u lua.UpstreamUse) client.ModelPause {
	switch {
	case u.Paused:
		return client.ModelPause{Paused: true, PausedBy: "operator", Reason: u.Reason}
	case !u.PausedUntil.IsZero():
		return client.ModelPause{Paused: true, PausedBy: "provider", Reason: u.Cause, PausedUntil: u.PausedUntil}
	case u.Probing:
		return client.ModelPause{Probing: true, Reason: u.Cause}
	}
	return client.ModelPause{}
}

// pauseOf returns the pause of a model: by an operator, or that of its upstreams if none works. Of those it is the one that ends first.
func pauseOf(room lua.Room) client.ModelPause {
	if room.Paused {
		return client.ModelPause{Paused: true, PausedBy: "operator", Reason: room.Reason}
	}
	var pauses []client.ModelPause
	for _, u := range room.Upstreams {
		pauses = append(pauses, pauseOfUpstream(u))
	}
	order := func(p client.ModelPause) int {
		switch {
		case !p.Paused && !p.Probing:
			return 0
		case p.Probing:
			return 1
		case !p.PausedUntil.IsZero():
			return 2
		default:
			return 3
		}
	}
	if len(pauses) == 0 {
		return client.ModelPause{}
	}
	return slices.MinFunc(pauses, func(a, b client.ModelPause) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), a.PausedUntil.Compare(b.PausedUntil))
	})
}

// routed returns what the templates of new tasks use.
func (s *server) routed() map[llm.Use]bool { return s.catalog().Uses(s.Templates.List()) }

// serves reports whether calls of a queue use a model, now or by the templates.
func serves(q lua.QueueUse, model string, routed map[llm.Use]bool) bool {
	return q.InUse+q.Waiting > 0 || routed[llm.Use{Queue: q.Queue, Model: model}]
}

// nextGrant returns the time in ms until the pace or a provider's pause permits a call.
func nextGrant(room lua.Room) int64 {
	if room.Paused {
		return 0
	}
	return ms(room.Stopped)
}

// eta returns the estimated wait of a call in seconds, nil when it is unknown.
func eta(wait time.Duration) *int {
	if wait < 0 {
		return nil
	}
	return new(seconds(wait))
}

// waitingUsers returns the users with the most waiting calls, of one queue if it is not empty.
func waitingUsers(model string, all []lua.UserWaiting, queue berth.Queue) []client.WaitingCalls {
	out := []client.WaitingCalls{}
	for _, u := range all {
		if queue == "" || u.Queue == queue {
			out = append(out, client.WaitingCalls{UserID: u.UserID, Group: u.Group, Queue: u.Queue, Model: model, Waiting: u.Waiting})
		}
	}
	return firstByWaiting(out)
}

// firstByWaiting returns the users with the most waiting calls.
func firstByWaiting(users []client.WaitingCalls) []client.WaitingCalls {
	slices.SortStableFunc(users, func(a, b client.WaitingCalls) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.UserID, b.UserID))
	})
	return users[:min(len(users), maxWaitingUsers)]
}

func (s *server) listQueues(ctx context.Context, _ *struct{}) (*queuesOutputBody, error) {
	all, routed := map[berth.Queue]*client.Queue{}, s.routed()
	models := s.neededModels()
	services, err := s.modelServices(ctx, models)
	if err != nil {
		return nil, err
	}
	for _, m := range models {
		room, err := s.room(ctx, m)
		if err != nil {
			return nil, err
		}
		for _, q := range room.Queues {
			if all[q.Queue] == nil {
				all[q.Queue] = &client.Queue{Queue: q.Queue, Weight: q.Weight, Models: []client.QueueModel{}, Users: []client.WaitingCalls{}}
			}
			if serves(q, m.Name, routed) {
				addToQueue(all[q.Queue], m.Name, services[m.Name], room, q)
			}
		}
	}
	out := &queuesOutputBody{Queues: []client.Queue{}}
	for _, q := range all {
		out.Queues = append(out.Queues, *q)
	}
	slices.SortFunc(out.Queues, func(a, b client.Queue) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Queue, b.Queue))
	})
	return out, nil
}

// addToQueue adds what a queue uses of one model.
func addToQueue(to *client.Queue, model string, service client.ModelService, room modelRoom, q lua.QueueUse) {
	v := client.QueueModel{
		Name: model, Cap: room.limits().Cap, InUse: q.InUse, Waiting: q.Waiting, ModelPause: pauseOf(room.Room), ModelService: service,
		NextGrantMs: nextGrant(room.Room), EtaSeconds: eta(q.Wait),
	}
	to.InUse += q.InUse
	to.Waiting += q.Waiting
	to.Models = append(to.Models, v)
	to.Users = firstByWaiting(append(to.Users, waitingUsers(model, room.Users, q.Queue)...))
}

// patchModel changes what operators set for a model.
func (s *server) patchModel(ctx context.Context, in *modelInput) (*client.Model, error) {
	m, err := s.modelNamed(in.Name)
	if err != nil {
		return nil, err
	}
	for _, limit := range []struct {
		name string
		limitChange
	}{{"cap", in.Body.Cap}, {"rpm", in.Body.RPM}, {"tpm", in.Body.TPM}} {
		if limit.present && len(m.Upstreams) > 1 {
			return nil, berth.Invalid(limit.name, "model %s has %d upstreams, each with a limit of its own: change that of one of them", m.Name, len(m.Upstreams))
		}
	}
	return s.changeLimits(ctx, m, in.Body, changeModel(m, in.Body))
}

// changeModel changes the settings of a model. Those of its only upstream are the model's, and a resumption ends the pauses of all upstreams.
func changeModel(m llm.Model, b modelChange) func(o *berth.ModelSettings, change func(*berth.LimitSettings)) {
	return func(o *berth.ModelSettings, change func(*berth.LimitSettings)) {
		change(&o.LimitSettings)
		all := maps.Clone(o.Upstreams)
		for name, l := range all {
			switch {
			case len(m.Upstreams) == 1:
				l = berth.LimitSettings{} // of when there were several
			case b.Paused != nil && !*b.Paused:
				l.Paused, l.Reason = false, ""
			}
			all[name] = l
		}
		o.Upstreams = all
	}
}

// patchUpstream changes what operators set for an upstream of a model.
func (s *server) patchUpstream(ctx context.Context, in *upstreamInput) (*client.Model, error) {
	m, err := s.modelNamed(in.Name)
	if err != nil {
		return nil, err
	}
	_, known := m.Upstream(in.Upstream)
	if !known {
		room, err := s.room(ctx, m)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(room.Unknown, in.Upstream) { // else what was set for it can be removed
			return nil, berth.Errorf(berth.CodeNotFound, "model %s has no upstream %q in the routing file", m.Name, in.Upstream)
		}
	}
	if known && len(m.Upstreams) == 1 {
		return s.changeLimits(ctx, m, in.Body, changeModel(m, in.Body))
	}
	return s.changeLimits(ctx, m, in.Body, func(o *berth.ModelSettings, change func(*berth.LimitSettings)) {
		all := maps.Clone(o.Upstreams)
		if all == nil {
			all = map[string]berth.LimitSettings{}
		}
		l := all[in.Upstream]
		change(&l)
		all[in.Upstream], o.Upstreams = l, all
	})
}

func (s *server) modelNamed(name string) (llm.Model, error) {
	m, ok := s.Routing.Of(name).Model(name)
	if !ok {
		return m, berth.Errorf(berth.CodeNotFound, "model %q not found in the routing file", name)
	}
	return m, nil
}

// changeLimits changes the settings that of selects.
func (s *server) changeLimits(
	ctx context.Context, m llm.Model, b modelChange, of func(o *berth.ModelSettings, change func(*berth.LimitSettings)),
) (*client.Model, error) {
	switch {
	case !b.Cap.present && !b.RPM.present && !b.TPM.present && b.Paused == nil && b.Reason == "":
		return nil, berth.Invalid("body", "must have at least one of cap, rpm, tpm and paused")
	case b.Reason != "" && (b.Paused == nil || !*b.Paused):
		return nil, berth.Invalid("reason", "is the reason of a pause; send it with paused: true")
	}
	err := cmp.Or(
		normalize("reason", &b.Reason, berth.MaxReason), b.Cap.check("cap", 1, berth.MaxModelCap), b.RPM.check("rpm", 0, maxRPM), b.TPM.check("tpm", 0, maxTPM), s.Fleet.Writable(),
	)
	if err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	now := time.UnixMilli(s.Clock().UnixMilli()).UTC() // as it is stored
	settings, err := s.Ledger.ChangeModelSettings(ctx, m.Name, by, func(o berth.ModelSettings) berth.ModelSettings {
		of(&o, func(l *berth.LimitSettings) {
			b.Cap.apply(&l.Cap)
			b.RPM.apply(&l.RPM)
			b.TPM.apply(&l.TPM)
			if b.Paused == nil {
				return
			}
			if l.Paused, l.Reason = *b.Paused, b.Reason; !l.Paused {
				l.ResumedAt = later(now, l.ResumedAt.Add(time.Millisecond))
			}
		})
		return o
	})
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(settings) // its limits are pointers
	if err != nil {
		return nil, fmt.Errorf("settings of a model: %w", err)
	}
	s.log.InfoContext(ctx, "model settings changed", "model", m.Name, "settings", string(text), "by", by)
	if err := s.apply(ctx, ledger.SettingModel, m.Name); err != nil {
		return nil, err
	}
	return s.model(ctx, m, s.routed())
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
