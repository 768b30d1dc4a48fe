package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
)

// assignBody asks for a slot of a node (S1-S5, S10).
type assignBody struct {
	LeaseID              string         `json:"leaseId,omitempty" doc:"Your own id: asking again gives the same slot. Without it one is made"`
	PoolID               string         `json:"poolId,omitempty" doc:"This, or requiredCapabilities"`
	RequiredCapabilities []string       `json:"requiredCapabilities,omitempty" maxItems:"64" doc:"Only nodes that have all of them (S4)"`
	Strategy             berth.Strategy `json:"strategy,omitempty" enum:"round-robin,load-balanced,affinity,capability,locality,power-of-two,dynamic" doc:"Without it the pool's; dynamic is what the pool is switched to, or round-robin"`
	Services             []string       `json:"services,omitempty" maxItems:"32" doc:"They must be available on the node (L10)"`
	ExcludeNodes         []string       `json:"excludeNodes,omitempty" maxItems:"100" doc:"Not these"`
	InstanceID           string         `json:"instanceId,omitempty" doc:"The caller's own node, for affinity and locality"`
	Host                 string         `json:"host,omitempty" doc:"Where the caller is, for locality; by default that of instanceId"`
	Zone                 string         `json:"zone,omitempty" doc:"Where the caller is, for locality; by default that of host or instanceId"`
	HoldMs               int64          `json:"holdMs,omitempty" minimum:"1000" maximum:"86400000" doc:"For how long, unless it is renewed; lockTimeoutMs of the fleet's configuration when absent"`
}

type assignOutput struct{ Body assignment }

// assignment is a slot taken. PUT takes it as it was answered, so that a Redis that lost its data can be told.
type assignment struct {
	LeaseID    string         `json:"leaseId,omitempty"`
	NodeID     string         `json:"nodeId,omitempty"`
	Generation int64          `json:"generation,omitempty" minimum:"0" maximum:"9007199254740991"`
	TaskQueue  string         `json:"taskQueue,omitempty" doc:"Temporal's, of this generation of the node"`
	PoolID     string         `json:"poolId,omitempty"`
	Strategy   berth.Strategy `json:"strategy,omitempty" doc:"That decided"`
	HoldMs     int64          `json:"holdMs,omitempty" minimum:"1000" maximum:"86400000" doc:"From when it was taken or renewed; lockTimeoutMs of the fleet's configuration when absent"`
	Existing   bool           `json:"existing,omitempty" doc:"It was taken by an earlier call"`
}

type renewInput struct {
	LeaseID string `path:"leaseId"`
	Body    *assignment
}

type releaseInput struct {
	LeaseID string `path:"leaseId"`
}

func (s *server) assignments(*echo.Echo) {
	tags := []string{"assignments"}
	register(s, huma.Operation{
		OperationID: "assign", Method: http.MethodPost, Path: "/v1/assignments", Tags: tags,
		Summary:     "Choose a node and take one of its slots, in one decision",
		Description: "503 node_full or no_node tells why nodes were passed over and which capabilities no living node has.",
	}, forFleet, s.assign)
	register(s, huma.Operation{
		OperationID: "renew-assignment", Method: http.MethodPut, Path: "/v1/assignments/{leaseId}", Tags: tags,
		Summary:     "Hold a slot for longer",
		Description: "With what POST answered as the body, a slot is put back that a Redis which lost its data has forgotten. 409: it is lost, assign anew.",
	}, forFleet, s.renew)
	register(s, huma.Operation{
		OperationID: "release-assignment", Method: http.MethodDelete, Path: "/v1/assignments/{leaseId}", Tags: tags,
		Summary: "Give a slot back; doing it again does no harm", DefaultStatus: http.StatusNoContent,
	}, forFleet, s.release)
}

// leaseOf keeps the leases of callers apart from each other's, and from those of jobs and executions.
func leaseOf(user, id string) string { return "lease:" + user + ":" + id }

// choice checks the request and says what a node is chosen by.
func (b assignBody) choice(now *fleet.Snapshot) (lua.Choice, error) {
	c := lua.Choice{
		PoolID: b.PoolID, Strategy: b.Strategy, Required: b.RequiredCapabilities, Services: b.Services, Excluded: b.ExcludeNodes,
		Own: b.InstanceID, OwnZone: b.Zone, OwnHost: b.Host, Hold: fromMs(b.HoldMs),
	}
	capable := len(b.RequiredCapabilities) > 0
	switch {
	case capable && b.PoolID != "":
		return c, berth.Invalid("poolId", "give poolId or requiredCapabilities, not both")
	case !capable && b.PoolID == "":
		return c, berth.Invalid("poolId", "poolId or requiredCapabilities must be given")
	case capable:
		for _, r := range b.RequiredCapabilities {
			if err := berth.ValidCapability("requiredCapabilities", r); err != nil {
				return c, err
			}
		}
		pool := berth.CapabilityPool(b.RequiredCapabilities...)
		if pool.Validate() != nil {
			return c, berth.Invalid("requiredCapabilities", "are too long together")
		}
		c.PoolID, c.Required = pool.ID, pool.Capabilities
	default:
		if err := checkPool("poolId", b.PoolID); err != nil {
			return c, err
		}
		c.Required = now.Pool(b.PoolID).Capabilities
	}
	if err := b.checkPlaces(); err != nil {
		return c, err
	}
	if c.Strategy == "" {
		if c.Strategy = now.Strategy(c.PoolID); capable && now.Pools[c.PoolID].Strategy == "" {
			c.Strategy = berth.StrategyCapability
		}
	}
	c.Strategy = now.Settled(c.PoolID, c.Strategy)
	if c.Hold == 0 {
		c.Hold = now.Config.LockTimeout
	}
	return now.Locate(c), nil
}

// checkPlaces checks what names nodes, services and places.
func (b assignBody) checkPlaces() error {
	for _, list := range []struct {
		field string
		ids   []string
	}{{"services", b.Services}, {"excludeNodes", b.ExcludeNodes}} {
		for _, id := range list.ids {
			if err := berth.ValidID(list.field, id); err != nil {
				return err
			}
		}
	}
	if b.InstanceID != "" {
		if err := berth.ValidID("instanceId", b.InstanceID); err != nil {
			return err
		}
	}
	if err := berth.ValidPlace("host", b.Host); err != nil {
		return err
	}
	return berth.ValidPlace("zone", b.Zone)
}

func (s *server) assign(ctx context.Context, in *struct{ Body assignBody }) (*assignOutput, error) {
	now := s.Fleet.Snapshot()
	c, err := in.Body.choice(now)
	if err != nil {
		return nil, err
	}
	id := in.Body.LeaseID
	if id == "" {
		id = uuid.NewString()
	}
	if err := berth.ValidID("leaseId", id); err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	lease := leaseOf(callOf(ctx).user.UserID, id)
	d, err := s.Scripts.Assign(ctx, lease, c)
	if err == nil && d.Code == lua.AssignNone {
		d, err = s.assignAnew(ctx, now, lease, c, d, in.Body)
	}
	if err != nil {
		return nil, fromRedis(err)
	}
	if err := s.refuse(d, c.Required); err != nil {
		return nil, err
	}
	if d.Existed && d.PoolID != c.PoolID {
		return nil, &berth.Error{
			Code: berth.CodeIdempotencyMismatch, Field: "leaseId", Message: "this lease was given for another pool",
		}
	}
	return &assignOutput{Body: viewAssignment(id, d.Assignment, c.Hold, d.Existed)}, nil
}

// refuse is refused, and says so where each capability is on some node and none has all (S4).
func (s *server) refuse(d lua.Decision, required []string) error {
	if d.Code == lua.AssignNone && len(d.Missing) == 0 {
		if lacks, why := s.Fleet.Snapshot().Apart(required); why != "" {
			return &RefusedError{Code: berth.CodeNoNode, Message: "no node can take it: " + why, Reasons: d.Passed, Missing: lacks}
		}
	}
	return refused(d)
}

// assignAnew tries again where no node could be chosen because of what was not known yet: a pool of several capabilities
// that nobody has asked for before, or one that was defined a moment ago.
func (s *server) assignAnew(
	ctx context.Context, now *fleet.Snapshot, lease string, c lua.Choice, d lua.Decision, b assignBody,
) (lua.Decision, error) {
	if b.PoolID == "" {
		if len(d.Missing) > 0 {
			return d, nil
		}
		changed, err := s.Fleet.Gather(ctx, c.PoolID, c.Required)
		if err != nil || !changed {
			return d, err
		}
		return s.Scripts.Assign(ctx, lease, c)
	}
	if _, known := now.Pools[b.PoolID]; known {
		return d, nil
	}
	p, defined, err := s.Scripts.FindPool(ctx, b.PoolID)
	if err != nil || !defined {
		return d, err
	}
	if c.Required = p.Capabilities; b.Strategy == "" && p.Strategy != "" && p.Strategy != berth.StrategyDynamic {
		c.Strategy = p.Strategy
	}
	return s.Scripts.Assign(ctx, lease, c)
}

func viewAssignment(id string, a berth.Assignment, hold time.Duration, existing bool) assignment {
	return assignment{
		LeaseID: id, NodeID: a.NodeID, Generation: a.Generation, TaskQueue: a.TaskQueue(), PoolID: a.PoolID,
		Strategy: a.Strategy, HoldMs: ms(hold), Existing: existing,
	}
}

// given is the slot as its holder knows it; none when the body does not tell.
func (b assignment) given(lease, id string) (berth.Assignment, error) {
	a := berth.Assignment{LeaseID: lease, NodeID: b.NodeID, Generation: b.Generation, PoolID: b.PoolID, Strategy: b.Strategy}
	if b.LeaseID != "" && b.LeaseID != id {
		return a, berth.Invalid("leaseId", "is not that of the path")
	}
	if b.NodeID == "" {
		return berth.Assignment{}, nil
	}
	if err := berth.ValidID("nodeId", b.NodeID); err != nil {
		return a, err
	}
	if b.Generation == 0 {
		return a, berth.Invalid("generation", "must be given with nodeId")
	}
	if err := checkPool("poolId", b.PoolID); err != nil {
		return a, err
	}
	return a, inField(berth.Pool{ID: b.PoolID, Strategy: b.Strategy}.Validate(), "strategy")
}

func (s *server) renew(ctx context.Context, in *renewInput) (*assignOutput, error) {
	if err := berth.ValidID("leaseId", in.LeaseID); err != nil {
		return nil, err
	}
	body := assignment{}
	if in.Body != nil {
		body = *in.Body
	}
	lease, hold := leaseOf(callOf(ctx).user.UserID, in.LeaseID), fromMs(body.HoldMs)
	a, err := body.given(lease, in.LeaseID)
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	if hold == 0 {
		hold = s.Fleet.Snapshot().Config.LockTimeout
	}
	kept, ok, err := s.Scripts.FindLease(ctx, lease)
	if err != nil {
		return nil, fromRedis(err)
	}
	if ok {
		a = kept
	}
	if a.NodeID == "" {
		return nil, errLeaseLost
	}
	a, err = s.hold(ctx, a, hold)
	if err != nil {
		return nil, fromRedis(err)
	}
	return &assignOutput{Body: viewAssignment(in.LeaseID, a, hold, true)}, nil
}

// hold holds the slot for longer. In a grace after Redis lost its data it puts it back, as soon as the node has
// registered again (L12).
func (s *server) hold(ctx context.Context, a berth.Assignment, ttl time.Duration) (berth.Assignment, error) {
	for checked := false; ; checked = true {
		code, generation, err := s.Scripts.ConfirmNodeSlot(ctx, a, ttl)
		if err != nil {
			return a, err
		}
		if code == lua.NodeSlotHeld {
			a.Generation = generation
			return a, nil
		}
		grace, err := s.Scripts.CheckGuard(ctx)
		switch {
		case err != nil:
			return a, err
		case grace.Left <= 0:
			return a, errLeaseLost
		case checked:
			return a, &RetryError{
				Err:   berth.Errorf(berth.CodeUnavailable, "Redis lost data, and the node has not registered again yet"),
				After: time.Second,
			}
		}
	}
}

var errLeaseLost = berth.Errorf(berth.CodeConflict, "the slot is lost: it lapsed, was given back, or went with its node; assign anew")

func (s *server) release(ctx context.Context, in *releaseInput) (*struct{}, error) {
	if err := berth.ValidID("leaseId", in.LeaseID); err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	lease := leaseOf(callOf(ctx).user.UserID, in.LeaseID)
	a, ok, err := s.Scripts.FindLease(ctx, lease)
	if err == nil && ok {
		_, err = s.Scripts.ReleaseNodeSlot(ctx, a.NodeID, lease)
	}
	if err != nil {
		return nil, fromRedis(err)
	}
	return nil, nil //nolint:nilnil // nothing to say: 204
}
