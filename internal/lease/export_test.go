package lease

import "context"

// CheckGuard makes the process know the epoch of the guard.
func (s *Slots) CheckGuard(ctx context.Context) error {
	_, err := s.scripts.CheckGuard(ctx)
	return err
}
