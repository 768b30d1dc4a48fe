package llm

import (
	"slices"

	"berth"
)

// The values of service_tier. Others are refused.
const (
	TierAuto     = "auto"
	TierDefault  = "default"
	TierFlex     = "flex"
	TierPriority = "priority"
	TierScale    = "scale"
)

// ServiceTiers returns the values of service_tier in the order of documentation.
func ServiceTiers() []string {
	return []string{TierAuto, TierDefault, TierFlex, TierPriority, TierScale}
}

// ServiceQueue returns the queue of calls with a service tier, and the tier that they get: where no queue of the routing file has the tier,
// flex has the queue of free batches, and the others have the default, that of paid streams. ok is false for an unknown tier.
func (c *Catalog) ServiceQueue(tier string) (queue berth.Queue, used string, ok bool) {
	if tier == "" {
		tier = TierDefault
	}
	if !slices.Contains(ServiceTiers(), tier) {
		return "", "", false
	}
	for name, q := range c.cfg.Queues {
		if q.ServiceTier == tier { // of which there is one at most
			return name, tier, true
		}
	}
	if tier == TierFlex {
		return c.queueFor(berth.TierFree, berth.ModeBatch), TierFlex, true
	}
	return c.queueFor(berth.TierPaid, berth.ModeStream), TierDefault, true
}
