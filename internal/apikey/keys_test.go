package apikey

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
)

// O3: secrets are unlike each other, and nothing else has their form.
func TestNewSecret_ManySecrets_CompleteAndDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		s := NewSecret()
		require.Regexp(t, `^sk-berth-[A-Za-z0-9_-]{43}$`, s)
		require.True(t, complete(s))
		require.True(t, strings.HasSuffix(s, Hint(s)))
		require.Len(t, Hint(s), 4)
		require.Regexp(t, `^[0-9a-f]{64}$`, Hash(s))
		require.False(t, seen[s])
		seen[s] = true
	}
	secret := NewSecret()
	for _, s := range []string{
		"", Prefix, secret[:len(secret)-1], secret + "A", strings.TrimPrefix(secret, Prefix), "sk-" + secret[9:], strings.ToUpper(secret[:9]) + secret[9:],
		secret[:len(secret)-2] + " A", secret[:20] + "+" + secret[21:],
	} {
		require.False(t, complete(s), "%q", s)
	}
}

// database has keys by hash. Each read takes a time.
type database struct {
	mu    sync.Mutex
	keys  map[string]ledger.KeyAccess
	err   error
	took  time.Duration
	reads atomic.Int64
}

func (d *database) KeyBySecret(ctx context.Context, hash string) (ledger.KeyAccess, error) {
	d.reads.Add(1)
	d.mu.Lock()
	a, ok := d.keys[hash]
	err, took := d.err, d.took
	d.mu.Unlock()
	if !ok && err == nil {
		err = berth.Errorf(berth.CodeNotFound, "not found")
	}
	select {
	case <-time.After(took):
		return a, err
	case <-ctx.Done():
		return ledger.KeyAccess{}, berth.Errorf(berth.CodeUnavailable, "database unavailable").With(ctx.Err())
	}
}

func (d *database) change(f func(*database)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// with returns the keys of a database that has one, with its secret.
func with(k berth.APIKey, took time.Duration) (*Keys, *database, string) {
	secret := NewSecret()
	k.Hint = Hint(secret)
	d := &database{keys: map[string]ledger.KeyAccess{Hash(secret): {Key: k, Team: berth.DefaultLevel()}}, took: took}
	return newKeys(d), d, secret
}

func requireCode(tb testing.TB, code berth.Code, err error) {
	tb.Helper()
	require.Error(tb, err)
	require.Equal(tb, code, berth.CodeOf(err), err)
}

// O3, O11: a thousand requests per second with one key read it once a second.
func TestFind_ThousandRequestsPerSecond_OneReadPerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, d, secret := with(berth.APIKey{ID: "key_1"}, 20*time.Millisecond)
		const seconds = 5
		var all sync.WaitGroup
		for i := range seconds * 1000 {
			all.Go(func() {
				<-time.After(time.Duration(i) * time.Millisecond)
				a, err := keys.Find(t.Context(), secret)
				if err != nil || a.Key.ID != "key_1" || a.Team != berth.DefaultLevel() {
					t.Errorf("request %d: %+v, %v", i, a, err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, seconds, d.reads.Load())
	})
}

// O3: a revocation has effect after a second at the latest, also where the database is slow.
func TestFind_KeyRevoked_RefusedWithinOneSecond(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{0, 900 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			keys, d, secret := with(berth.APIKey{ID: "key_1"}, took)
			var all sync.WaitGroup
			all.Go(func() {
				_, err := keys.Find(t.Context(), secret)
				if err != nil {
					t.Errorf("valid key: %v", err)
				}
			})
			synctest.Wait()
			d.change(func(d *database) {
				for hash, a := range d.keys {
					a.Key.RevokedAt = time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
					d.keys[hash] = a
				}
			})
			<-time.After(validity)
			_, err := keys.Find(t.Context(), secret)
			requireCode(t, berth.CodeUnauthenticated, err)
			require.ErrorContains(t, err, "ends in "+Hint(secret)+" was revoked at 2026-11-27T10:00:00Z")
			all.Wait()
		})
	}
}

// O3: a key expires at its time, not when it is read again.
func TestFind_KeyExpires_RefusedFromThenOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, d, secret := with(berth.APIKey{ExpiresAt: time.Now().Add(500 * time.Millisecond).UTC()}, 0)
		<-time.After(499 * time.Millisecond)
		_, err := keys.Find(t.Context(), secret)
		require.NoError(t, err)
		<-time.After(time.Millisecond)
		_, err = keys.Find(t.Context(), secret)
		requireCode(t, berth.CodeUnauthenticated, err)
		require.ErrorContains(t, err, "expired at 2000-01-01T00:00:00Z")
		require.EqualValues(t, 1, d.reads.Load())
	})
}

// O3: what is unknown occupies no memory, and is refused with what is wrong.
func TestFind_UnknownSecrets_RefusedAndForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, d, secret := with(berth.APIKey{}, time.Millisecond)
		for range 100 {
			_, err := keys.Find(t.Context(), NewSecret())
			requireCode(t, berth.CodeUnauthenticated, err)
			require.ErrorContains(t, err, "the API key is unknown")
		}
		require.EqualValues(t, 100, d.reads.Load())
		_, err := keys.Find(t.Context(), secret[:20])
		requireCode(t, berth.CodeUnauthenticated, err)
		require.EqualValues(t, 100, d.reads.Load(), "an incomplete secret is not read")
		require.Zero(t, size(keys))

		_, err = keys.Find(t.Context(), secret)
		require.NoError(t, err)
		require.Equal(t, 1, size(keys))
		<-time.After(validity)
		_, err = keys.Find(t.Context(), NewSecret())
		requireCode(t, berth.CodeUnauthenticated, err)
		require.Zero(t, size(keys), "a key that is not used any more")
	})
}

func size(k *Keys) (n int) {
	k.reads.Range(func(any, any) bool { n++; return true })
	return n
}

// O3: without the database no key is valid, and with it the next request is checked again.
func TestFind_DatabaseUnavailable_RefusedUntilItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, d, secret := with(berth.APIKey{}, 0)
		_, err := keys.Find(t.Context(), secret)
		require.NoError(t, err)
		d.change(func(d *database) { d.err = berth.Errorf(berth.CodeUnavailable, "database unavailable; retry") })
		<-time.After(validity)
		_, err = keys.Find(t.Context(), secret)
		requireCode(t, berth.CodeUnavailable, err)
		d.change(func(d *database) { d.err, d.took = nil, time.Hour })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = keys.Find(ctx, secret)
		requireCode(t, berth.CodeUnavailable, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = keys.Find(t.Context(), secret)
		requireCode(t, berth.CodeUnavailable, err)
		require.False(t, errors.Is(err, context.Canceled), "the request that began the read has ended, and others wait for it: %v", err)
		d.change(func(d *database) { d.took = 0 })
		_, err = keys.Find(t.Context(), secret)
		require.NoError(t, err)
	})
}
