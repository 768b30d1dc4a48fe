package api

import (
	"context"
	"slices"
	"strings"

	"berth"
	"berth/internal/identity"
	"berth/internal/placement"
)

// tenantOf returns the tenant of a request: the token's, or the one that an operator names.
func tenantOf(p identity.Principal, named string) (string, error) {
	if named == "" {
		return p.TenantID, nil
	}
	if err := berth.ValidID("tenantId", named); err != nil {
		return "", err
	}
	if named != p.TenantID && !p.Operator() {
		return "", &berth.Error{Code: berth.CodeForbidden, Field: "tenantId", Message: "must be the tenant of the token, or absent"}
	}
	return named, nil
}

// usePool returns an error unless the caller may use the pool. A pool of other tenants is refused like one that does not exist, so
// that its existence is not revealed. A pool of several capabilities is allowed only where the pools of each are. capabilities are
// those that the caller named instead of the pool, if any.
func (s *server) usePool(ctx context.Context, poolID string, capabilities ...string) error {
	p, fleet := callOf(ctx).user, s.Fleet.Snapshot()
	denied := func(id string) bool { return !fleet.Pool(id).Allows(p.TenantID) }
	if p.Operator() || !denied(poolID) && !slices.ContainsFunc(strings.Split(poolID, "+"), denied) {
		return nil
	}
	s.log.InfoContext(ctx, "pool refused: the tenant may not use it", "pool", poolID, "tenant", p.TenantID, "user", p.UserID)
	if len(capabilities) == 0 {
		capabilities = []string{poolID}
	}
	return &berth.Refusal{
		Code: berth.CodeNoNode, PoolID: poolID, Missing: capabilities, Reasons: map[berth.ExcludeReason]int{berth.ExcludeCapabilityMissing: 1},
	}
}

// useUnits returns an error unless the caller may use the media units, of the zone if one is given.
func (s *server) useUnits(ctx context.Context, zone string) error {
	err := s.usePool(ctx, berth.CapabilityConference)
	if err == nil && zone != "" {
		err = s.usePool(ctx, placement.ZonePool(berth.NodeMedia, berth.CapabilityConference, zone).ID, berth.CapabilityConference)
	}
	return err
}

// reserved reports whether a pool has media units, whose slots are for conferences.
func (s *server) reserved(poolID string) bool {
	p := s.Fleet.Snapshot().Pool(poolID)
	return p.Kind == berth.NodeMedia || slices.Contains(p.Capabilities, berth.CapabilityConference) ||
		slices.Contains(strings.Split(poolID, "+"), berth.CapabilityConference)
}
