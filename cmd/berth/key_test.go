package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/client"
)

// O3: the list shows whether a key is valid.
func TestKeyState_Times_Stated(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for want, k := range map[string]client.Key{
		"valid":                           {},
		"valid until 2026-11-27 12:00:01": {KeySpec: client.KeySpec{ExpiresAt: now.Add(time.Second)}},
		"expired 2026-11-27 12:00:00":     {KeySpec: client.KeySpec{ExpiresAt: now}},
		"revoked 2026-11-26 12:00:00":     {KeySpec: client.KeySpec{ExpiresAt: now}, RevokedAt: now.AddDate(0, 0, -1)},
	} {
		require.Equal(t, want, keyState(k, now))
	}
}
