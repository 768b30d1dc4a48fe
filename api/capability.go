package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"berth"
)

// registerAgain is how long after a loss of data in Redis its nodes may take to register again.
const registerAgain = 2 * time.Minute

// unknownCapability returns CodeInvalid instead of a refusal because of a capability or pool that no node has offered so far: a retry
// would be refused again. One whose nodes are offline is known. named returns the field of the request that names it.
func (s *server) unknownCapability(ctx context.Context, err error, named func(capability string) string) error {
	if refusal, ok := errors.AsType[*berth.Refusal](err); ok {
		if _, defined := s.Fleet.Snapshot().Pools[refusal.PoolID]; defined {
			return err
		}
	}
	return s.refuseUnknown(ctx, err, named, s.knowsCapability)
}

// hiddenCapability is unknownCapability for a refusal by usePool: the caller learns what it would if the pool did not exist.
func (s *server) hiddenCapability(ctx context.Context, err error, named func(capability string) string) error {
	tenant := callOf(ctx).user.TenantID
	visible := func(_ context.Context, id string) (bool, error) {
		return s.Fleet.Snapshot().Pool(id).Allows(tenant), nil
	}
	return s.refuseUnknown(ctx, err, named, visible)
}

func (s *server) refuseUnknown(
	ctx context.Context, err error, named func(string) string, knows func(context.Context, string) (bool, error),
) error {
	refusal, ok := errors.AsType[*berth.Refusal](err)
	if !ok || refusal.Code != berth.CodeNoNode {
		return err
	}
	for _, missing := range refusal.Missing {
		known, readErr := knows(ctx, missing)
		if readErr != nil {
			s.log.DebugContext(ctx, "known capabilities not read", "requestId", callOf(ctx).requestID, "error", readErr)
			return err
		}
		if known {
			continue
		}
		if guard, readErr := s.Scripts.CheckGuard(ctx); readErr != nil || !guard.Until.IsZero() && -guard.Left < registerAgain {
			return err
		}
		if field := named(missing); field != "poolId" {
			return berth.Invalid(field, "no node offers %q, and none has so far; check the name", missing)
		}
		return berth.Invalid("poolId", "pool %q is not defined, and no node has offered a capability of this name; check the name", missing)
	}
	return err
}

// knowsCapability reports whether a node has offered the capability, or a pool has its name.
func (s *server) knowsCapability(ctx context.Context, id string) (bool, error) {
	snapshot := s.Fleet.Snapshot()
	if _, defined := snapshot.Pools[id]; defined {
		return true, nil
	}
	for _, n := range snapshot.Nodes {
		if slices.Contains(n.Capabilities, id) {
			return true, nil
		}
	}
	return s.Scripts.KnowsCapability(ctx, id)
}
