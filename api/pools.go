package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/internal/fleet"
	"berth/internal/ledger"
)

// poolView is a pool: what is defined of it, which is what PUT takes, and how it does.
type poolView struct {
	PoolID       string         `json:"poolId,omitempty" readOnly:"true"`
	Kind         berth.NodeKind `json:"kind,omitempty" doc:"Nodes of this kind only"`
	Capabilities []string       `json:"capabilities,omitempty" doc:"Nodes that have all of them"`
	Zone         string         `json:"zone,omitempty" doc:"Nodes of this zone only"`
	Strategy     berth.Strategy `json:"strategy,omitempty" doc:"How its node is chosen; without one the fleet's"`

	Defined     bool                   `json:"defined" readOnly:"true" doc:"False: the pool that a capability is by itself"`
	Members     int                    `json:"members" readOnly:"true"`
	Counts      *berth.PoolCounts      `json:"counts,omitempty" readOnly:"true" doc:"How many members can be chosen, and why not the others"`
	Missing     []string               `json:"missing,omitempty" readOnly:"true" doc:"Its capabilities that no living node has"`
	StrategyNow berth.Strategy         `json:"strategyNow,omitempty" readOnly:"true" doc:"What a dynamic pool has been switched to, or what holds anyway; absent: load-balanced in small pools, power-of-two in large ones"`
	Switches    []berth.StrategySwitch `json:"switches,omitempty" readOnly:"true" doc:"The last ones of a dynamic pool, newest first"`
	Stale       bool                   `json:"stale" readOnly:"true" doc:"Redis is away: this is the pool as it was last seen"`
}

type poolInput struct {
	ID string `path:"id" doc:"The pool; escaped where it holds a slash"`
}

type putPoolInput struct {
	ID   string `path:"id" doc:"The pool; escaped where it holds a slash"`
	Body poolView
}

type poolOutput struct{ Body poolView }

type poolsOutput struct {
	Body struct {
		Pools      []poolView `json:"pools"`
		NextCursor string     `json:"nextCursor,omitempty" doc:"Absent on the last page"`
		Stale      bool       `json:"stale" doc:"Redis is away: these are the pools as they were last seen"`
	}
}

// poolRoutes registers the routes of pools (S7, L8, L9).
func (s *server) poolRoutes() {
	tags := []string{"pools"}
	register(s, huma.Operation{
		OperationID: "list-pools", Method: http.MethodGet, Path: "/v1/pools", Tags: tags,
		Summary: "The pools by id: those defined, and those that capabilities of nodes are by themselves",
	}, forOperator, s.listPools)
	register(s, huma.Operation{
		OperationID: "get-pool", Method: http.MethodGet, Path: "/v1/pools/{id}", Tags: tags,
		Summary: "A pool: who can be chosen, who is passed over and why, how the node is chosen now",
	}, forOperator, s.getPool)
	register(s, huma.Operation{
		OperationID: "put-pool", Method: http.MethodPut, Path: "/v1/pools/{id}", Tags: tags,
		Summary: "Define a pool and move the nodes it concerns", Description: "The answer tells how many members it has, and which of its capabilities no living node has.",
	}, forOperator, s.putPool)
	register(s, huma.Operation{
		OperationID: "delete-pool", Method: http.MethodDelete, Path: "/v1/pools/{id}", Tags: tags,
		Summary: "Take a pool's definition back", Description: "A pool named like a capability goes on as the pool of that capability.",
		DefaultStatus: http.StatusNoContent,
	}, forOperator, s.deletePool)
}

// checkPool tells whether id can be a pool's; where it reads like a language pair it has to be one.
func checkPool(field, id string) error {
	err := berth.Pool{ID: id}.Validate()
	for part := range strings.SplitSeq(id, "+") {
		if err == nil {
			err = berth.ValidCapability(field, part)
		}
	}
	return inField(err, field)
}

// inField has an error about a request name the field that the request has.
func inField(err error, field string) error {
	var e *berth.Error
	if errors.As(err, &e) {
		named := *e
		named.Field = field
		return &named
	}
	return err
}

func (s *server) listPools(_ context.Context, in *PageQuery) (*poolsOutput, error) {
	l := s.listed()
	ids, next := page(l.pools, in.Cursor, in.Limit, func(string) bool { return true })
	out := &poolsOutput{}
	out.Body.Pools, out.Body.NextCursor, out.Body.Stale = make([]poolView, 0, len(ids)), next, l.of.Stale
	for _, id := range ids {
		out.Body.Pools = append(out.Body.Pools, l.pool(id))
	}
	return out, nil
}

func (s *server) getPool(ctx context.Context, in *poolInput) (*poolOutput, error) {
	if err := checkPool("poolId", in.ID); err != nil {
		return nil, err
	}
	v, stale, err := latest(s.Fleet.Snapshot(), poolView{}, func() (poolView, error) { return s.poolNow(ctx, in.ID) })
	switch {
	case err != nil:
		return nil, err
	case !stale && !v.Defined && v.Members == 0:
		return nil, berth.Errorf(berth.CodeNotFound, "there is no such pool")
	case !stale:
		return &poolOutput{Body: v}, nil
	}
	l := s.listed()
	if _, ok := l.counts[in.ID]; !ok {
		return nil, unavailable("Redis", nil) // it may have been defined meanwhile
	}
	v = l.pool(in.ID)
	v.Stale = true
	return &poolOutput{Body: v}, nil
}

func (s *server) putPool(ctx context.Context, in *putPoolInput) (*poolOutput, error) {
	b := in.Body
	if err := checkPool("poolId", in.ID); err != nil {
		return nil, err
	}
	if b.PoolID != "" && b.PoolID != in.ID {
		return nil, berth.Invalid("poolId", "is not that of the path")
	}
	p := berth.Pool{
		ID: in.ID, Kind: b.Kind, Capabilities: slices.Concat([]string{}, b.Capabilities), Zone: b.Zone, Strategy: b.Strategy,
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.ID, err)
	}
	if err := s.set(ctx, ledger.SettingPool, p.ID, body); err != nil {
		return nil, err
	}
	v, err := s.poolNow(ctx, p.ID)
	if err != nil {
		return nil, fromRedis(err)
	}
	return &poolOutput{Body: v}, nil
}

func (s *server) deletePool(ctx context.Context, in *poolInput) (*struct{}, error) {
	if err := checkPool("poolId", in.ID); err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	_, defined, err := s.Scripts.FindPool(ctx, in.ID)
	if err != nil {
		return nil, fromRedis(err)
	}
	if !defined {
		return nil, berth.Errorf(berth.CodeNotFound, "there is no such pool, or nobody defined it")
	}
	return nil, s.set(ctx, ledger.SettingPool, in.ID, nil)
}

// pool is how the snapshot has it.
func (l *listing) pool(id string) poolView {
	p, defined := l.of.Pools[id]
	v := viewPool(l.of.Pool(id), defined, l.counts[id])
	for _, c := range l.of.Pool(id).Capabilities {
		if !l.living[c] {
			v.Missing = append(v.Missing, c)
		}
	}
	if v.StrategyNow = l.of.Strategy(id); p.Strategy == "" && !defined {
		v.Strategy = ""
	}
	v.Stale = l.of.Stale
	return v
}

// poolNow is how Redis has it.
func (s *server) poolNow(ctx context.Context, id string) (poolView, error) {
	p, defined, err := s.Scripts.FindPool(ctx, id)
	if err != nil {
		return poolView{}, err
	}
	if !defined {
		p = berth.Pool{ID: id, Capabilities: []string{id}}
	}
	counts, err := s.Scripts.CountPool(ctx, id)
	if err != nil {
		return poolView{}, err
	}
	v := viewPool(p, defined, counts)
	if v.Missing, err = s.Scripts.MissingCapabilities(ctx, p.Capabilities...); err != nil {
		return v, err
	}
	if v.StrategyNow = p.Strategy; v.StrategyNow == "" {
		v.StrategyNow = s.Fleet.Snapshot().Config.AssignmentStrategy
	}
	if v.StrategyNow == berth.StrategyDynamic {
		is, err := s.Scripts.CurrentStrategy(ctx, id)
		if err != nil {
			return v, err
		}
		v.StrategyNow = is.Strategy
	}
	v.Switches, err = s.Scripts.StrategySwitches(ctx, id)
	return v, err
}

func viewPool(p berth.Pool, defined bool, counts berth.PoolCounts) poolView {
	if counts.Excluded == nil {
		counts.Excluded = map[berth.ExcludeReason]int{}
	}
	v := poolView{
		PoolID: p.ID, Kind: p.Kind, Capabilities: slices.Concat([]string{}, p.Capabilities), Zone: p.Zone, Strategy: p.Strategy,
		Defined: defined, Members: counts.Free, Counts: &counts,
	}
	for _, n := range counts.Excluded {
		v.Members += n
	}
	return v
}

// set keeps a setting in the ledger and writes it to Redis: the first is what counts in the end, the second what
// counts for decisions (L8). What was begun is finished even when the caller has gone.
func (s *server) set(ctx context.Context, kind ledger.SettingKind, id string, body json.RawMessage) error {
	if err := s.Fleet.Writable(); err != nil {
		return err
	}
	by := callOf(ctx).user.UserID
	if err := s.Ledger.PutSetting(ctx, ledger.Setting{Kind: kind, ID: id, Body: body, By: by}); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "setting of the fleet", "kind", kind, "id", id, "deleted", len(body) == 0, "by", by)
	if err := s.apply(ctx, kind, id); err != nil {
		return err
	}
	// What is answered holds for what this process decides from then on.
	seen, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	s.Fleet.CatchUp(seen)
	return nil
}

// apply writes a setting that is kept to Redis.
func (s *server) apply(ctx context.Context, kind ledger.SettingKind, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	err := fleet.ApplySetting(ctx, s.Ledger, s.Scripts, kind, id)
	if berth.CodeOf(err) == berth.CodeUnavailable || unreachable(err) {
		return berth.Errorf(berth.CodeUnavailable, "the change is kept, and does not hold yet: ask again").With(err)
	}
	return err
}

// catchUpTimeout is how long a change that holds is kept from being answered.
const catchUpTimeout = 2 * time.Second

// applyTimeout is for moving ten thousand nodes between pools.
const applyTimeout = 30 * time.Second
