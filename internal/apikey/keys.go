package apikey

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/ledger"
)

const (
	// validity is how long a key that was read is used: a revocation takes effect after that time at the latest.
	validity = time.Second
	// readTimeout limits one read, for which several requests may wait.
	readTimeout = 5 * time.Second
)

// store is what Keys needs of *ledger.Ledger, which documents the method.
type store interface {
	KeyBySecret(ctx context.Context, hash string) (ledger.KeyAccess, error)
}

// Keys finds the keys of the requests to a process. It reads each about once a second, however many requests have it. It is safe for
// concurrent use.
type Keys struct {
	ledger store
	// reads has the last read of each key by the hash of its secret. Failed reads, such as those of unknown secrets, are removed when they
	// end and old ones after a second: there are no more than keys that are in use, and concurrent requests.
	reads sync.Map // string -> *read
	began time.Time
	swept atomic.Int64 // when old reads were removed last, since began
}

// read is one read of a key. access and err are set when done is closed.
type read struct {
	at     time.Time // before the database was read
	done   chan struct{}
	access ledger.KeyAccess
	err    error
}

func asRead(v any) *read { return v.(*read) } //nolint:errcheck // reads has nothing else

func (r *read) fresh() bool { return time.Since(r.at) < validity }

// New returns the keys of a ledger.
func New(l *ledger.Ledger) *Keys { return newKeys(l) }

func newKeys(s store) *Keys { return &Keys{ledger: s, began: time.Now()} }

// Find returns the valid key with a secret, as it was at most a second ago. CodeUnauthenticated for a secret that is unknown, and for a key that
// was revoked or has expired; CodeUnavailable while keys cannot be read. No error has the secret.
func (k *Keys) Find(ctx context.Context, secret string) (ledger.KeyAccess, error) {
	if !complete(secret) {
		return ledger.KeyAccess{}, unknown()
	}
	r := k.read(ctx, Hash(secret))
	select {
	case <-r.done:
	case <-ctx.Done():
		return ledger.KeyAccess{}, berth.Errorf(berth.CodeUnavailable, "the API key could not be checked in time; retry").With(ctx.Err())
	}
	switch {
	case berth.CodeOf(r.err) == berth.CodeNotFound:
		return ledger.KeyAccess{}, unknown()
	case r.err != nil:
		return ledger.KeyAccess{}, r.err
	}
	if err := Valid(r.access.Key); err != nil {
		return ledger.KeyAccess{}, err
	}
	return r.access, nil
}

// Valid returns CodeUnauthenticated for a key that was revoked or has expired.
func Valid(key berth.APIKey) error {
	switch {
	case !key.RevokedAt.IsZero():
		return berth.Errorf(berth.CodeUnauthenticated, "the API key that ends in %s was revoked at %s", key.Hint, key.RevokedAt.Format(time.RFC3339))
	case !key.ExpiresAt.IsZero() && !time.Now().Before(key.ExpiresAt):
		return berth.Errorf(berth.CodeUnauthenticated, "the API key that ends in %s expired at %s", key.Hint, key.ExpiresAt.Format(time.RFC3339))
	default:
		return nil
	}
}

func unknown() error {
	return berth.Errorf(berth.CodeUnauthenticated, "the API key is unknown; check that it is complete: %s and 43 characters", Prefix)
}

// read returns the read of a key that began in the last second: it begins one if there is none.
func (k *Keys) read(ctx context.Context, hash string) *read {
	if last, ok := k.reads.Load(hash); ok && asRead(last).fresh() {
		return asRead(last)
	}
	next := &read{at: time.Now(), done: make(chan struct{})}
	for {
		last, known := k.reads.LoadOrStore(hash, next)
		if known && asRead(last).fresh() {
			return asRead(last)
		}
		if !known || k.reads.CompareAndSwap(hash, last, next) {
			break
		}
	}
	k.sweep()
	go func() {
		defer close(next.done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // others may wait for it
		defer cancel()
		if next.access, next.err = k.ledger.KeyBySecret(ctx, hash); next.err != nil {
			k.reads.CompareAndDelete(hash, next)
		}
	}()
	return next
}

// sweep removes old reads, once a second.
func (k *Keys) sweep() {
	last, now := k.swept.Load(), int64(time.Since(k.began))
	if now-last < int64(validity) || !k.swept.CompareAndSwap(last, now) {
		return
	}
	k.reads.Range(func(hash, r any) bool {
		if !asRead(r).fresh() {
			k.reads.CompareAndDelete(hash, r)
		}
		return true
	})
}
