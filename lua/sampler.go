package lua

import (
	"context"
	"time"
)

// Codes of claim_sampler.
const (
	SamplerClaimed = "CLAIMED"
	SamplerOther   = "OTHER"
)

// ClaimSampler reports whether this process samples the metrics of the whole system for a time, which it has to renew. With a
// time of 0, the claim ends within a millisecond.
func (s *Scripts) ClaimSampler(ctx context.Context, processID string, ttl time.Duration) (bool, error) {
	r := s.call(ctx, "claim_sampler", []string{s.keys.Sampler()}, processID, millis(ttl))
	return r.code(SamplerClaimed, SamplerOther) == SamplerClaimed, r.done()
}
