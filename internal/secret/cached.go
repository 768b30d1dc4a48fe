package secret

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// every is how often a file is read again while it is used.
const every = time.Second

// Cached is a secret for uses that are too frequent to read its file at each. A change of the file applies within a second; a file
// that cannot be read or parsed is logged and changes nothing.
type Cached[T any] struct {
	secret Secret
	parse  func(text string) (T, error)
	log    *slog.Logger
	state  atomic.Pointer[reading[T]]
}

type reading[T any] struct {
	value   T
	at      time.Time
	problem string // of the file since then
}

// NewCached reads a secret. The errors of parse must not contain the text.
func NewCached[T any](s Secret, parse func(text string) (T, error), logger *slog.Logger) (*Cached[T], error) {
	c := &Cached[T]{secret: s, parse: parse, log: logger}
	value, err := c.read()
	if err != nil {
		return nil, err
	}
	c.state.Store(&reading[T]{value: value, at: time.Now()})
	return c, nil
}

// Current returns the value, which is at most a second older than the file.
func (c *Cached[T]) Current() T {
	last := c.state.Load()
	if !c.secret.FromFile() || time.Since(last.at) < every {
		return last.value
	}
	claimed := *last
	claimed.at = time.Now()
	if !c.state.CompareAndSwap(last, &claimed) { // another caller reads
		return last.value
	}
	next := claimed
	value, err := c.read()
	switch {
	case err == nil:
		next.value, next.problem = value, ""
	case err.Error() != last.problem:
		next.problem = err.Error()
		c.log.WarnContext(context.Background(), "secret not reloaded; the last one stays in use", "setting", c.secret.Setting(), "error", err)
	}
	c.state.CompareAndSwap(&claimed, &next)
	return next.value
}

func (c *Cached[T]) read() (value T, err error) {
	text, err := c.secret.Read()
	if err != nil {
		return value, err
	}
	if value, err = c.parse(text); err != nil && !Named(err) {
		err = c.secret.Invalid("%s", err)
	}
	return value, err
}
