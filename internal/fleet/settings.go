package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/ledger"
	"berth/lua"
)

// ApplySetting writes a setting from the store to Redis. After each write it reads the setting again, so that of several
// concurrent changes Redis ends up with the one in the store. The next call, or RestoreSettings, makes up for a failure.
func ApplySetting(ctx context.Context, store *ledger.Ledger, scripts *lua.Scripts, kind ledger.SettingKind, id string) error {
	s, err := store.Setting(ctx, kind, id)
	if err != nil || s.Version == 0 {
		return err
	}
	return applySetting(ctx, store, scripts, s)
}

func applySetting(ctx context.Context, store *ledger.Ledger, scripts *lua.Scripts, s ledger.Setting) error {
	for {
		if err := writeSetting(ctx, scripts, s); err != nil {
			return fmt.Errorf("write %s %s to Redis: %w", s.Kind, s.ID, err)
		}
		current, err := store.Setting(ctx, s.Kind, s.ID)
		if err != nil {
			return err
		}
		if current.Version == s.Version {
			return store.MarkApplied(ctx, s)
		}
		s = current
	}
}

func writeSetting(ctx context.Context, scripts *lua.Scripts, s ledger.Setting) error {
	switch s.Kind {
	case ledger.SettingPool:
		if len(s.Body) == 0 {
			return scripts.DeletePool(ctx, s.ID)
		}
		return write(s, berth.Pool{}, func(p berth.Pool) error {
			_, err := scripts.DefinePool(ctx, p, false)
			return err
		})
	case ledger.SettingTenant:
		return write(s, "", func(pool string) error { return scripts.BindTenant(ctx, s.ID, pool) })
	case ledger.SettingStrategy:
		return write(s, berth.DefaultFleetConfig(), func(c berth.FleetConfig) error { return scripts.PutFleetConfig(ctx, c) })
	case ledger.SettingNode:
		return write(s, berth.NodeSettings{}, func(n berth.NodeSettings) error {
			hold := lua.Cordon{Cordoned: n.Cordoned}
			if !n.DrainUntil.IsZero() {
				hold.Drain = max(time.Until(n.DrainUntil), time.Millisecond)
			}
			return scripts.CordonNode(ctx, s.ID, hold)
		})
	case ledger.SettingModel:
		return write(s, berth.ModelSettings{}, func(m berth.ModelSettings) error {
			if err := setLimits(ctx, scripts, s.ID, "", m.LimitSettings); err != nil {
				return err
			}
			for _, upstream := range slices.Sorted(maps.Keys(m.Upstreams)) {
				if err := setLimits(ctx, scripts, s.ID, upstream, m.Upstreams[upstream]); err != nil {
					return err
				}
			}
			return nil
		})
	case ledger.SettingTeam, ledger.SettingApp:
		return write(s, berth.DefaultLevel(), func(l berth.LevelSettings) error {
			return scripts.SetLevel(ctx, levelOf(s), l.Weight, l.Slots)
		})
	default:
		if len(s.Body) == 0 {
			return scripts.PutServices(ctx, json.RawMessage(`{}`))
		}
		return scripts.PutServices(ctx, s.Body)
	}
}

func setLimits(ctx context.Context, scripts *lua.Scripts, model, upstream string, s berth.LimitSettings) error {
	limits := lua.OperatorLimits{Cap: s.Cap, RPM: s.RPM, TPM: s.TPM, Paused: s.Paused, Reason: s.Reason}
	if !s.ResumedAt.IsZero() {
		limits.Resumed = s.ResumedAt.UnixMilli()
	}
	_, err := scripts.SetModelLimits(ctx, model, upstream, lua.SlotTimes{TTL: lua.ModelLease, Grant: lua.ModelGrant}, limits)
	return err
}

// levelOf returns the level of a team's or application's settings.
func levelOf(s ledger.Setting) lua.Level {
	if s.Kind == ledger.SettingApp {
		return lua.Level{App: s.ID}
	}
	return lua.Level{Team: s.ID}
}

// write calls put with the value of a setting, which for a deleted one is what it was before.
func write[T any](s ledger.Setting, value T, put func(T) error) error {
	if len(s.Body) > 0 {
		if err := json.Unmarshal(s.Body, &value); err != nil {
			return err
		}
	}
	return put(value)
}

// RestoreSettings writes to Redis the settings that it does not have: all of them after a loss of data, and changes that
// did not reach it. It does not overwrite what Redis has, except the limits of teams and applications, which Redis then has as the store
// does: an older copy of Redis may have those of deleted ones. It returns how many settings it wrote. It may be called at any
// time and by any number of processes; when nothing is missing it costs one query and one round trip.
func RestoreSettings(ctx context.Context, store *ledger.Ledger, scripts *lua.Scripts) (int, error) {
	settings, err := store.Settings(ctx)
	if err != nil {
		return 0, err
	}
	present, deleted, err := presentSettings(ctx, scripts, settings)
	if err != nil {
		return 0, err
	}
	var written atomic.Int64
	var g errgroup.Group
	g.SetLimit(maxApplied)
	restore := func(apply func() error) {
		g.Go(func() error {
			err := apply()
			if err == nil {
				written.Add(1)
			}
			return err
		})
	}
	for i, s := range settings {
		if !s.Applied || !present[i] {
			restore(func() error { return ApplySetting(ctx, store, scripts, s.Kind, s.ID) })
		}
	}
	for _, s := range deleted { // unless it was defined since the settings were read
		restore(func() error { return applySetting(ctx, store, scripts, s) })
	}
	err = g.Wait()
	return int(written.Load()), err
}

// maxApplied is how many settings are written at the same time: there may be thousands of teams.
const maxApplied = 8

// presentSettings reports for each setting whether Redis has one of its kind and id, and for a team or application whether it has the same
// limits. deleted are settings without a value, of teams and applications that only Redis has.
func presentSettings(ctx context.Context, scripts *lua.Scripts, settings []ledger.Setting) (present []bool, deleted []ledger.Setting, err error) {
	ids := map[ledger.SettingKind][]string{}
	for _, s := range settings {
		ids[s.Kind] = append(ids[s.Kind], s.ID)
	}
	in, err := scripts.StoredSettings(ctx, ids[ledger.SettingNode], ids[ledger.SettingModel])
	if err != nil {
		return nil, nil, err
	}
	present = make([]bool, len(settings))
	for i, s := range settings {
		switch s.Kind {
		case ledger.SettingPool:
			present[i] = in.Pools[s.ID]
		case ledger.SettingTenant:
			present[i] = in.Tenants[s.ID]
		case ledger.SettingStrategy:
			present[i] = in.Strategy
		case ledger.SettingServices:
			present[i] = in.Services
		case ledger.SettingNode:
			present[i] = in.Nodes[s.ID]
		case ledger.SettingModel:
			present[i] = in.Models[s.ID]
		case ledger.SettingTeam, ledger.SettingApp:
			present[i] = hasLimits(in.Levels, s)
			delete(in.Levels, levelOf(s))
		}
	}
	for l := range in.Levels {
		s := ledger.Setting{Kind: ledger.SettingTeam, ID: l.Team}
		if l.App != "" {
			s.Kind, s.ID = ledger.SettingApp, l.App
		}
		deleted = append(deleted, s)
	}
	return present, deleted, nil
}

// hasLimits reports whether the limits in Redis are those of a team's or application's settings. Redis has no defaults.
func hasLimits(levels map[lua.Level]lua.LevelLimits, s ledger.Setting) bool {
	want := berth.DefaultLevel()
	if len(s.Body) > 0 && json.Unmarshal(s.Body, &want) != nil {
		return false
	}
	has, ok := levels[levelOf(s)]
	if !ok {
		has = lua.LevelLimits{Weight: berth.DefaultLevel().Weight}
	}
	return has == lua.LevelLimits{Weight: want.Weight, Slots: want.Slots}
}
