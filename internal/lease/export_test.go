package lease

import "context"

// CheckGuard makes the process know the epoch of the guard.
func (s *Slots) CheckGuard(ctx context.Context) error {
	_, err := s.scripts.CheckGuard(ctx)
	return err
}

// Settled reports whether no call is in flight and the process knows the ticket of each request that waits.
func (s *Slots) Settled() bool {
	settled := make(chan bool, 1)
	s.post(func(o *owner) {
		all := o.calls == 0
		for _, e := range o.records {
			all = all && (e.holding || e.ticket != "")
		}
		settled <- all
	})
	return <-settled
}
