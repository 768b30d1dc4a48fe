package main

import (
	"testing"
	"time"

	"github.com/alecthomas/kong"
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

// O3: a budget is that of one key or one team.
func TestBudget_KeyOrTeam_OneIsRequired(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--key or --team is required": {"budget", "show"},
		"can't be used together":      {"budget", "delete", "--key", "k", "--team", "t"},
		"--credits":                   {"budget", "set", "--key", "k"},
		"--period must be one of":     {"budget", "set", "--key", "k", "--credits", "1", "--period", "year"},
	} {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse(args)
		require.ErrorContains(t, err, want, args)
	}
}
