package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

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
	for {
		if err := writeSetting(ctx, scripts, s); err != nil {
			return fmt.Errorf("write %s %s to Redis: %w", kind, id, err)
		}
		current, err := store.Setting(ctx, kind, id)
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
// did not reach it. It does not overwrite what Redis has. It returns how many settings it wrote. It may be called at any
// time and by any number of processes; when nothing is missing it costs one query and one round trip.
func RestoreSettings(ctx context.Context, store *ledger.Ledger, scripts *lua.Scripts) (int, error) {
	settings, err := store.Settings(ctx)
	if err != nil || len(settings) == 0 {
		return 0, err
	}
	present, err := presentSettings(ctx, scripts, settings)
	if err != nil {
		return 0, err
	}
	written := 0
	for i, s := range settings {
		if s.Applied && present[i] {
			continue
		}
		if err := ApplySetting(ctx, store, scripts, s.Kind, s.ID); err != nil {
			return written, err
		}
		written++
	}
	return written, nil
}

// presentSettings reports for each setting whether Redis has one of its kind and id.
func presentSettings(ctx context.Context, scripts *lua.Scripts, settings []ledger.Setting) ([]bool, error) {
	ids := map[ledger.SettingKind][]string{}
	for _, s := range settings {
		ids[s.Kind] = append(ids[s.Kind], s.ID)
	}
	in, err := scripts.StoredSettings(ctx, ids[ledger.SettingNode], ids[ledger.SettingModel])
	if err != nil {
		return nil, err
	}
	present := make([]bool, len(settings))
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
		}
	}
	return present, nil
}
