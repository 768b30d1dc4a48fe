package lua

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"berth"
)

// Codes of the slot scripts.
const (
	SlotHeld     = "HELD"     // held already, or granted before and claimed now: renewed for the lease time
	SlotGranted  = "GRANTED"  // held from now on, for the lease time
	SlotWaiting  = "WAITING"  // in the room
	SlotLost     = "LOST"     // renew_slots, holds_slot: the lease had expired
	SlotReleased = "RELEASED" // release_slot
	SlotsRenewed = "RENEWED"  // renew_slots
	GuardOK      = "OK"       // mark_new: slots are granted immediately
	GuardExists  = "EXISTS"   // mark_new: this Redis had a guard, which is kept
)

// SlotTimes are the times of model leases. All processes of a cell have to use the same.
type SlotTimes struct {
	TTL   time.Duration // how long a lease lasts without renewal; a waiter lasts TTL - Grant, at least TTL / 2
	Grant time.Duration // how long a slot stays reserved for a waiter that does not claim it
}

// ModelLimits are the configured limits of a model. Each call passes them, so that they return after a loss of data. Those of a
// newer revision, and those that operators have set with SetModelLimits, take precedence.
type ModelLimits struct {
	// Revision rises with each change of the configuration: limits of an older one than Redis knows have no effect.
	Revision int64 `json:"revision"`
	UserCap  int   `json:"userCap"` // slots of one user, of all models together; 0 for no limit
	// Queues are the weights of the queues, 1 by default.
	Queues map[berth.Queue]int `json:"queues"`
	// Upstreams serve the model, by rank. A model without any does not exist: it grants nothing.
	Upstreams []UpstreamLimits `json:"upstreams"`
}

// UpstreamLimits are the configured limits of one upstream of a model.
type UpstreamLimits struct {
	Name     string `json:"name"`     // unique in the model; without comma, semicolon and slash
	Rank     int    `json:"rank"`     // the lowest with a free slot is used first
	Cap      int    `json:"cap"`      // slots; a lower one than before revokes nothing
	Auto     bool   `json:"auto"`     // the number of slots is learned, between Min and Cap
	Min      int    `json:"min"`      // at least 1 with Auto
	RPM      int    `json:"rpm"`      // requests per minute; 0 for no limit
	TPM      int    `json:"tpm"`      // tokens per minute; 0 for no limit
	Provider string `json:"provider"` // whose upstreams, of all models, share ProviderCap
	// ProviderCap is 0 for no limit.
	ProviderCap int `json:"providerCap"`
	// Context is the maximum size of prompt and answer together in tokens; 0 if it is unknown.
	Context int `json:"context"`
}

// OneUpstream returns the limits of a model with one upstream, which has so many slots.
func OneUpstream(slots int) ModelLimits {
	return ModelLimits{Upstreams: []UpstreamLimits{{Name: "only", Rank: 1, Cap: slots}}}
}

// arg returns the limits as include upstream reads them.
func (l ModelLimits) arg() string {
	if l.Queues == nil {
		l.Queues = map[berth.Queue]int{}
	}
	if l.Upstreams == nil {
		l.Upstreams = []UpstreamLimits{}
	}
	b, _ := json.Marshal(l) // numbers and texts: never fails; the names of queues are sorted
	return string(b)
}

// Path is where a lease waits among the others: in a queue, and there on each level that it has: a user at least.
type Path struct {
	Queue  berth.Queue
	UserID string // or the id of an API key, which the limit of users does not concern
	Group
}

// Group has the levels at which a user waits together with others.
type Group = berth.Group

// String returns the path as include tree reads it. Below an application there are end users always, so that none of its users is a
// neighbour of its own end users.
func (p Path) String() string {
	parts := []string{string(p.Queue)}
	for _, level := range []struct{ kind, id string }{{"team", p.Team}, {"app", p.App}} {
		if level.id != "" {
			parts = append(parts, level.kind+":"+berth.EscapeID(level.id))
		}
	}
	kind := "user:"
	if berth.IsKeyID(p.UserID) {
		kind = "key:"
	}
	parts = append(parts, kind+berth.EscapeID(p.UserID))
	if p.App != "" {
		parts = append(parts, "end:"+berth.EscapeID(p.EndUser))
	}
	return strings.Join(parts, "|")
}

// parsePath is the opposite of Path.String.
func parsePath(s string) (Path, error) {
	queue, rest, _ := strings.Cut(s, "|")
	p := Path{Queue: berth.Queue(queue)}
	for part := range strings.SplitSeq(rest, "|") {
		kind, escaped, _ := strings.Cut(part, ":")
		id, err := url.PathUnescape(escaped) // of berth.EscapeID
		field := map[string]*string{"team": &p.Team, "app": &p.App, "user": &p.UserID, "key": &p.UserID, "end": &p.EndUser}[kind]
		if err != nil || field == nil {
			return Path{}, fmt.Errorf("path %q has an unreadable level %q", s, part)
		}
		*field = id
	}
	return p, nil
}

// Lease is what a lease id consists of.
type Lease struct {
	Process string // a grant is published to it; without a slash
	Path
	Cost float64 // estimate of the call's thousands of tokens; 1 when 0
	Needs
	Rest string // makes the id unique
}

// Needs is what a call needs of its upstream, where the model has several.
type Needs struct {
	Tokens       int      // of prompt and answer, 0 if unknown; see UpstreamLimits.Context
	Conversation string   // calls of the same one prefer the same upstream
	Excluded     []string // upstreams that are used only while no other one works
}

// String returns the needs as include upstream reads them.
func (n Needs) String() string {
	tokens := ""
	if n.Tokens > 0 {
		tokens = strconv.Itoa(n.Tokens)
	}
	conversation := ""
	if n.Conversation != "" {
		sum := sha256.Sum256([]byte(n.Conversation))
		conversation = hex.EncodeToString(sum[:6])
	}
	return tokens + ";" + conversation + ";" + strings.Join(n.Excluded, ",")
}

// ID returns the lease id.
func (l Lease) ID() string {
	cost := l.Cost
	if cost <= 0 {
		cost = 1
	}
	return strings.Join([]string{l.Process, l.Path.String(), strconv.FormatFloat(cost, 'f', -1, 64), l.Needs.String(), l.Rest}, "/")
}

// SlotCall is a request for a slot of a model.
type SlotCall struct {
	Model  string
	Limits ModelLimits
	Lease  string // see Lease
	Ticket string // what SlotReply had for the lease before, empty for a new one
	Waiter string // of the task that requests the slot, see ModelWaiter; it ends. Empty for none
	Times  SlotTimes
}

// SlotReply is the state of one lease.
type SlotReply struct {
	Code     string // SlotHeld, SlotGranted or SlotWaiting
	Upstream string // whose slot it is; empty while it waits
	Position int    // estimated number of leases that are served before it; waiting only
	Ticket   string // to pass when it enters the room again, to keep its position; waiting only
	// Next is the time until a slot may become free without a notification, such as by the expiry of a dead holder's
	// lease: a waiter renews then. 0 when no lease waits. Not set in the replies of RenewSlots.
	Next time.Duration
	Now  int64 // Redis's clock in ms at the call; not set in the replies of RenewSlots
}

// slotArgs returns the arguments that the slot scripts have in common.
func (s *Scripts) slotArgs(t SlotTimes, more ...any) []any {
	return append([]any{s.keys.prefix(), millis(t.TTL), millis(t.Grant), s.epoch.Load()}, more...)
}

// AcquireSlot takes a slot, claims a granted one, or enters the room. Idempotent by lease id.
func (s *Scripts) AcquireSlot(ctx context.Context, c SlotCall) (SlotReply, error) {
	res := s.call(ctx, "acquire_slot", []string{s.keys.Guard()}, s.slotArgs(c.Times, c.Model, c.Limits.arg(), c.Lease, c.Ticket, c.Waiter)...)
	r := slotReply(res)
	r.Next, r.Now = res.duration(), res.wide()
	s.promoted(res)
	return r, res.done()
}

// ReleaseSlot releases leases of a model, whether they hold or wait, and grants the free slots to the next waiters, also to
// those of other models that waited for a slot of the same user or provider. Idempotent. held is the number of leases that
// held a slot and had not expired; next as in SlotReply.
func (s *Scripts) ReleaseSlot(
	ctx context.Context, model string, limits ModelLimits, t SlotTimes, leases ...string,
) (held int, next time.Duration, err error) {
	r := s.call(ctx, "release_slot", []string{s.keys.Guard()}, with(s.slotArgs(t, model, limits.arg()), leases...)...)
	r.code(SlotReleased)
	held, next = int(r.number()), r.duration()
	s.promoted(r)
	return held, next, r.done()
}

// HoldsSlot reports whether a lease holds a slot of a model.
func (s *Scripts) HoldsSlot(ctx context.Context, model, lease string) (bool, error) {
	r := s.call(ctx, "holds_slot", []string{s.keys.ModelHolders(model)}, lease)
	code := r.code(SlotHeld, SlotLost)
	return code == SlotHeld, r.done()
}

// ModelLeases are the leases of one process on one model.
type ModelLeases struct {
	Model   string
	Limits  ModelLimits
	Holders []HeldLease
	Waiters []WaitingLease // in the order in which new ones enter the room
}

// HeldLease is a lease that holds a slot of an upstream.
type HeldLease struct {
	Lease    string
	Upstream string
}

// WaitingLease is a lease that waits, with its ticket (empty: none yet).
type WaitingLease struct {
	Lease  string
	Ticket string
}

// ModelRenewal is the result for a ModelLeases, entry by entry.
type ModelRenewal struct {
	Next    time.Duration // see SlotReply
	Holders []string      // SlotHeld or SlotLost
	Waiters []SlotReply
}

// RenewSlots renews all leases of a process, of all models, in one call: it renews holders, claims grants and keeps the
// tickets of waiters. now is Redis's clock in ms. An expired holder is lost, except in the grace after Redis lost data or
// was replaced: then it is restored. A call without models opens that grace, if it is due.
func (s *Scripts) RenewSlots(ctx context.Context, t SlotTimes, models []ModelLeases) (now int64, out []ModelRenewal, err error) {
	args := s.slotArgs(t)
	for _, m := range models {
		args = append(args, m.Model, m.Limits.arg(), len(m.Holders), len(m.Waiters))
		for _, h := range m.Holders {
			args = append(args, h.Lease, h.Upstream)
		}
		for _, w := range m.Waiters {
			args = append(args, w.Lease, w.Ticket)
		}
	}
	r := s.call(ctx, "renew_slots", []string{s.keys.Guard()}, args...)
	r.code(SlotsRenewed)
	now = r.wide()
	r.list(func() { out = append(out, modelRenewal(r)) })
	s.promoted(r)
	ok := len(out) == len(models)
	for i, m := range models {
		ok = ok && len(out[i].Holders) == len(m.Holders) && len(out[i].Waiters) == len(m.Waiters)
	}
	if !ok {
		r.fail()
	}
	return now, out, r.done()
}

// MarkNew declares that this Redis is new and empty, so that no lease can exist and slots are granted without a grace. It
// returns GuardOK, or GuardExists when the Redis has a guard.
func (s *Scripts) MarkNew(ctx context.Context) (string, error) {
	return s.code(ctx, "mark_new", []string{s.keys.Guard()})
}

// Grant is a message on a process's wake channel: a slot was granted to one of its waiters.
type Grant struct {
	Model    string
	Upstream string
	Lease    string
	Ticket   string // see SlotCall
	Expires  int64  // Redis's clock in ms; a grant that is not claimed by then goes to the next waiter
	Epoch    int64  // of the guard of the Redis that granted it
}

// Current reports whether the grant comes from a Redis whose guard is as new as the newest that this process has seen. That of
// a master which did not notice that it was replaced is not valid.
func (s *Scripts) Current(g Grant) bool { return g.Epoch >= s.epoch.Load() }

// ParseGrant parses a message of a wake channel.
func ParseGrant(payload string) (Grant, error) {
	f := strings.SplitN(payload, "\n", 6)
	if len(f) != 6 {
		return Grant{}, fmt.Errorf("wake message %q does not have six lines", payload)
	}
	expires, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return Grant{}, fmt.Errorf("expiry of wake message: %w", err)
	}
	epoch, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return Grant{}, fmt.Errorf("epoch of wake message: %w", err)
	}
	return Grant{Ticket: f[0], Expires: expires, Epoch: epoch, Model: f[3], Upstream: f[4], Lease: f[5]}, nil
}

// slotReply reads the code, upstream, position and ticket of a lease.
func slotReply(r *reply) SlotReply {
	return SlotReply{Code: r.text(), Upstream: r.text(), Position: int(r.number()), Ticket: r.text()}
}

func modelRenewal(r *reply) (m ModelRenewal) {
	r.list(func() {
		m.Next = r.duration()
		m.Holders = r.texts()
		r.list(func() {
			r.list(func() { m.Waiters = append(m.Waiters, slotReply(r)) })
		})
	})
	return m
}
