package berth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeySettings_DurabilityAndRetention_BelongTogether(t *testing.T) { // O3, O9
	t.Parallel()
	for _, c := range []struct {
		durability Durability
		retention  KeyRetention
		want       KeySettings // empty where field is wrong
		field      string
	}{
		{"", "", KeySettings{Durability: DurabilityDurable, Retention: RetentionAll}, ""},
		{"", RetentionNone, KeySettings{Durability: DurabilityDirect, Retention: RetentionNone}, ""},
		{"", RetentionErrors, KeySettings{Durability: DurabilityDurable, Retention: RetentionErrors}, ""},
		{DurabilityDirect, "", KeySettings{Durability: DurabilityDirect, Retention: RetentionNone}, ""},
		{DurabilityDurable, "36h", KeySettings{Durability: DurabilityDurable, Retention: "36h"}, ""},
		{DurabilityDurable, RetentionNone, KeySettings{}, "retention"},
		{DurabilityDirect, RetentionAll, KeySettings{}, "retention"},
		{"", "forever", KeySettings{}, "retention"},
		{"", "-1h", KeySettings{}, "retention"},
		{"", "7d", KeySettings{}, "retention"},
		{"sometimes", "", KeySettings{}, "durability"},
	} {
		s := KeySettings{Durability: c.durability, Retention: c.retention}
		err := s.Normalize()
		if c.field != "" {
			var wrong *Error
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, c.field, wrong.Field, "%s %s", c.durability, c.retention)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, s)
		require.NoError(t, s.Normalize(), "again")
	}
}

func TestKeyRetention_Keeps(t *testing.T) { // O3
	t.Parallel()
	for retention, want := range map[KeyRetention][2]time.Duration{ // of a call that completed, and of one that failed; -1 as tasks
		"": {-1, -1}, RetentionAll: {-1, -1}, RetentionErrors: {0, -1}, RetentionMetadata: {0, 0}, RetentionNone: {0, 0}, "2h": {2 * time.Hour, 2 * time.Hour},
	} {
		for i, failed := range []bool{false, true} {
			kept, limited := retention.Keeps(failed)
			if !limited {
				kept = -1
			}
			require.Equal(t, want[i], kept, "%s, failed: %v", retention, failed)
		}
	}
}
