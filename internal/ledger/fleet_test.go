package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

// S11: concurrent changes of a node's settings are all kept.
func TestChangeNodeSettings_ConcurrentChanges_AllKept(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		var g errgroup.Group
		until := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
		for i := range 20 {
			g.Go(func() error {
				_, err := l.ChangeNodeSettings(t.Context(), "n1", "olga", func(o berth.NodeSettings) berth.NodeSettings {
					if i%2 == 0 {
						o.Cordoned = true
					} else {
						o.DrainUntil = until
					}
					return o
				})
				return err
			})
		}
		require.NoError(t, g.Wait())
		settings, _, err := l.NodeSettings(t.Context(), "n1")
		require.NoError(t, err)
		require.Equal(t, berth.NodeSettings{Cordoned: true, DrainUntil: until}, settings)
	})
}

// T4: concurrent changes of a model's limits are all kept.
func TestChangeModelSettings_ConcurrentChanges_AllKept(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		var g errgroup.Group
		for i := range 20 {
			g.Go(func() error {
				_, err := l.ChangeModelSettings(t.Context(), "m", "olga", func(o berth.ModelSettings) berth.ModelSettings {
					if i%2 == 0 {
						o.Cap = new(3)
					} else {
						o.Paused, o.Reason = true, "maintenance"
					}
					return o
				})
				return err
			})
		}
		require.NoError(t, g.Wait())
		s, err := l.Setting(t.Context(), SettingModel, "m")
		require.NoError(t, err)
		require.JSONEq(t, `{"cap": 3, "paused": true, "reason": "maintenance"}`, string(s.Body))
	})
}

func TestPutSetting_InvalidKindOrID_Rejected(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		for _, s := range []Setting{
			{Kind: "poem", ID: "x"},
			{Kind: SettingPool},
			{Kind: SettingTenant},
			{Kind: SettingStrategy, ID: "x"},
			{Kind: SettingServices, ID: "x"},
			{Kind: SettingPool, ID: "a\x00b"},
		} {
			requireCode(t, berth.CodeInvalid, l.PutSetting(t.Context(), s))
		}
		all, err := l.Settings(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
	})
}
