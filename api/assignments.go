package api

import (
	"cmp"
	"context"
	"time"

	"berth"
	"berth/internal/placement"
	"berth/lua"
)

// assignBody is a request for a slot of a node.
type assignBody struct {
	LeaseID              string         `json:"leaseId,omitempty" doc:"Client-supplied id; a retry with it returns the same slot. Generated when absent"`
	PoolID               string         `json:"poolId,omitempty" doc:"The pool to choose from. Exactly one of poolId and requiredCapabilities must be set"`
	RequiredCapabilities []string       `json:"requiredCapabilities,omitempty" maxItems:"64" doc:"Choose from the nodes that have all of these capabilities"`
	Strategy             berth.Strategy `json:"strategy,omitempty" doc:"Default: the pool's strategy. dynamic means the strategy that the pool is switched to, or round-robin"`
	Services             []string       `json:"services,omitempty" maxItems:"32" doc:"Services that must be available on the node, in addition to those that its capabilities require. A node that declares services must declare these"`
	ExcludeNodes         []string       `json:"excludeNodes,omitempty" maxItems:"100" doc:"Ids of nodes that must not be chosen"`
	InstanceID           string         `json:"instanceId,omitempty" doc:"Id of the caller's own node, for the strategies affinity and locality"`
	Host                 string         `json:"host,omitempty" doc:"Host of the caller, for the strategy locality. Default: the host of instanceId"`
	Zone                 string         `json:"zone,omitempty" doc:"Zone of the caller, for the strategy locality. Default: the zone of host or instanceId"`
	HoldMs               int64          `json:"holdMs,omitempty" minimum:"1000" maximum:"86400000" doc:"Lifetime of the lease unless it is renewed, in milliseconds. Default: lockTimeoutMs of the fleet configuration"`
}

type assignInput struct{ Body assignBody }

func (in *assignInput) node() (field, id string) { return "instanceId", in.Body.InstanceID }

// assignment is a slot that was taken. PUT accepts what POST returned, so that the slot can be restored after Redis lost it.
type assignment struct {
	LeaseID    string         `json:"leaseId,omitempty"`
	NodeID     string         `json:"nodeId,omitempty"`
	Generation int64          `json:"generation,omitempty" minimum:"0" maximum:"9007199254740991"`
	TaskQueue  string         `json:"taskQueue,omitempty" doc:"Temporal task queue of this generation of the node"`
	PoolID     string         `json:"poolId,omitempty"`
	Strategy   berth.Strategy `json:"strategy,omitempty" doc:"The strategy that chose the node"`
	HoldMs     int64          `json:"holdMs,omitempty" minimum:"1000" maximum:"86400000" doc:"Lifetime of the lease from its creation or renewal, in milliseconds. Default: lockTimeoutMs of the fleet configuration"`
	Existing   bool           `json:"existing,omitempty" doc:"True if an earlier request took the slot"`
}

type renewInput struct {
	LeaseID string `path:"leaseId"`
	Body    *assignment
}

// node returns none: a lease belongs to its caller, whichever node it is on.
func (in *renewInput) node() (field, id string) { return "", "" }

type releaseInput struct {
	LeaseID string `path:"leaseId"`
}

func (in *releaseInput) node() (field, id string) { return "", "" }

func (s *server) assignmentRoutes() {
	register(s, "POST /v1/assignments", forFleet, s.assign, op("assign", "assignments", "Choose a node and take one of its slots",
		"One atomic decision. 503 `node_full` or `no_node` lists the number of excluded nodes by reason and the "+
			"capabilities that no registered node has."))
	register(s, "PUT /v1/assignments/{leaseId}", forFleet, s.renew, op("renew-assignment", "assignments", "Renew a lease",
		"With the response of POST as the body, a slot is also restored after Redis lost its data, if the node serves the pool and has a "+
			"free slot. "+
			"409: the lease expired or was released; request a new assignment."))
	registerOutput(s, "DELETE /v1/assignments/{leaseId}", forFleet, s.release, op("release-assignment", "assignments", "Release a slot",
		"Idempotent."))
}

// leaseOf returns the lease id that separates the leases of callers from each other, and from those of jobs and executions.
func leaseOf(user, id string) string { return "lease:" + berth.EscapeID(user) + ":" + id }

// request validates the body and returns what is to be placed.
func (b assignBody) request() (placement.Request, error) {
	r := placement.Request{
		Requirements: berth.Requirements{
			PoolID: b.PoolID, Strategy: b.Strategy, Services: b.Services, Excluded: b.ExcludeNodes,
			Own: b.InstanceID, OwnZone: b.Zone, OwnHost: b.Host,
		},
		Hold: fromMs(b.HoldMs),
	}
	capable := len(b.RequiredCapabilities) > 0
	switch {
	case capable && b.PoolID != "":
		return r, berth.Invalid("poolId", "set either poolId or requiredCapabilities, not both")
	case !capable && b.PoolID == "":
		return r, berth.Invalid("poolId", "set poolId or requiredCapabilities")
	case capable:
		capabilities := make([]string, len(b.RequiredCapabilities))
		for i, c := range b.RequiredCapabilities {
			var err error
			if capabilities[i], err = berth.ParseCapability("requiredCapabilities", c); err != nil {
				return r, err
			}
		}
		pool := berth.CapabilityPool(capabilities...)
		if pool.Normalize() != nil {
			return r, berth.Invalid("requiredCapabilities", "are too long together")
		}
		r.PoolID, r.Capabilities = pool.ID, pool.Capabilities
	default:
		var err error
		if r.PoolID, err = berth.ParsePoolID("poolId", b.PoolID); err != nil {
			return r, err
		}
	}
	return r, cmp.Or(b.checkIDs(), normalize("host", &r.OwnHost, berth.MaxLabel), normalize("zone", &r.OwnZone, berth.MaxLabel))
}

// checkIDs validates the ids of services and nodes.
func (b assignBody) checkIDs() error {
	var err error
	for _, id := range b.Services {
		err = cmp.Or(err, berth.ValidID("services", id))
	}
	for _, id := range b.ExcludeNodes {
		err = cmp.Or(err, berth.ValidID("excludeNodes", id))
	}
	return cmp.Or(err, optionalID("instanceId", b.InstanceID))
}

func (s *server) assign(ctx context.Context, in *assignInput) (*assignment, error) {
	r, err := in.Body.request()
	if err != nil {
		return nil, err
	}
	id := cmp.Or(in.Body.LeaseID, berth.NewID(""))
	if err := cmp.Or(berth.ValidID("leaseId", id), s.Fleet.Writable()); err != nil {
		return nil, err
	}
	if err := s.usePool(ctx, r.PoolID, r.Capabilities...); err != nil {
		return nil, err
	}
	r.Hold = cmp.Or(r.Hold, s.Fleet.Snapshot().Config.LockTimeout)
	a, err := s.placer.Assign(ctx, leaseOf(callOf(ctx).user.UserID, id), r)
	if err != nil {
		return nil, fromRedis(err)
	}
	if a.Existed && a.PoolID != r.PoolID {
		return nil, errorIn("leaseId", berth.CodeIdempotencyMismatch, "this lease belongs to another pool")
	}
	return viewAssignment(id, a, r.Hold, a.Existed), nil
}

func viewAssignment(id string, a berth.Assignment, hold time.Duration, existing bool) *assignment {
	return &assignment{
		LeaseID: id, NodeID: a.NodeID, Generation: a.Generation, TaskQueue: a.TaskQueue(), PoolID: a.PoolID,
		Strategy: a.Strategy, HoldMs: ms(hold), Existing: existing,
	}
}

// held validates the body and returns the slot as its holder knows it; an empty one when the body names no node.
func (b assignment) held(lease, id string) (berth.Assignment, error) {
	a := berth.Assignment{LeaseID: lease, NodeRef: berth.NodeRef{NodeID: b.NodeID, Generation: b.Generation}, PoolID: b.PoolID, Strategy: b.Strategy}
	if b.LeaseID != "" && b.LeaseID != id {
		return a, berth.Invalid("leaseId", "does not match the path")
	}
	if b.NodeID == "" {
		return berth.Assignment{}, nil
	}
	if err := berth.ValidID("nodeId", b.NodeID); err != nil {
		return a, err
	}
	if b.Generation == 0 {
		return a, berth.Invalid("generation", "is required with nodeId")
	}
	if err := berth.ValidPoolID("poolId", b.PoolID); err != nil {
		return a, err
	}
	pool := berth.Pool{ID: b.PoolID, Strategy: b.Strategy}
	return a, pool.Normalize()
}

func (s *server) renew(ctx context.Context, in *renewInput) (*assignment, error) {
	if err := berth.ValidID("leaseId", in.LeaseID); err != nil {
		return nil, err
	}
	body := assignment{}
	if in.Body != nil {
		body = *in.Body
	}
	lease, hold := leaseOf(callOf(ctx).user.UserID, in.LeaseID), fromMs(body.HoldMs)
	a, err := body.held(lease, in.LeaseID)
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	hold = cmp.Or(hold, s.Fleet.Snapshot().Config.LockTimeout)
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
	if err := s.usePool(ctx, a.PoolID); err != nil {
		return nil, err
	}
	a, err = s.hold(ctx, a, hold)
	if err != nil {
		return nil, fromRedis(err)
	}
	return viewAssignment(in.LeaseID, a, hold, true), nil
}

// hold extends a lease. During the grace after Redis lost its data it restores the slot, once the node has registered again.
func (s *server) hold(ctx context.Context, a berth.Assignment, ttl time.Duration) (berth.Assignment, error) {
	for checked := false; ; checked = true {
		code, generation, err := s.Scripts.RenewAssignment(ctx, a, ttl)
		switch {
		case err != nil:
			return a, err
		case code == lua.NodeSlotHeld:
			a.Generation = generation
			return a, nil
		case code == lua.AssignNone:
			return a, berth.Invalid("poolId", "the node does not serve this pool; send the response of the assignment")
		case code == lua.AssignFull:
			return a, berth.Errorf(berth.CodeConflict, "the lease was lost and every slot of the node is in use; request a new assignment")
		}
		grace, err := s.Scripts.CheckGuard(ctx)
		switch {
		case err != nil:
			return a, err
		case grace.Left <= 0:
			return a, errLeaseLost
		case checked:
			return a, &RetryError{
				Err:   berth.Errorf(berth.CodeUnavailable, "Redis lost data and the node has not registered again yet; retry"),
				After: time.Second,
			}
		}
	}
}

var errLeaseLost = berth.Errorf(berth.CodeConflict, "lease expired or released; request a new assignment")

func (s *server) release(ctx context.Context, in *releaseInput) (*struct{}, error) {
	if err := cmp.Or(berth.ValidID("leaseId", in.LeaseID), s.Fleet.Writable()); err != nil {
		return nil, err
	}
	lease := leaseOf(callOf(ctx).user.UserID, in.LeaseID)
	a, ok, err := s.Scripts.FindLease(ctx, lease)
	if err == nil && ok {
		_, err = s.Scripts.ReleaseNodeSlot(ctx, a.NodeID, lease)
	}
	return nil, fromRedis(err)
}
