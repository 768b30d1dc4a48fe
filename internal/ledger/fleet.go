package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"berth"
)

// SettingKind is the kind of a setting of the fleet.
type SettingKind string

// The kinds of settings. Those of the whole fleet have no id.
const (
	SettingPool     SettingKind = "pool"     // berth.Pool
	SettingTenant   SettingKind = "tenant"   // the pool's id, a JSON text
	SettingStrategy SettingKind = "strategy" // berth.FleetConfig
	SettingServices SettingKind = "services" // any JSON object
	SettingNode     SettingKind = "node"     // berth.NodeSettings; written by ChangeNodeSettings
	SettingModel    SettingKind = "model"    // berth.ModelSettings; written by ChangeModelSettings
)

// Setting is one operator setting of the fleet.
type Setting struct {
	Kind SettingKind
	ID   string
	// Body is valid for its kind. An empty one means that the setting is deleted.
	Body json.RawMessage
	By   string
	// Version and UpdatedAt are set by the ledger.
	Version   int64
	UpdatedAt time.Time
	// Applied reports whether Redis has this version.
	Applied bool
}

// A version is at least the time in ms, so that it increases even if the row was deleted in between.
const putSetting = `INSERT INTO settings (kind, id, body, version, applied, updated_by, updated_at)
	VALUES ($1, $2, $3, $4, 0, $5, $4) ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body,
	version = CASE WHEN settings.version < excluded.version THEN excluded.version ELSE settings.version + 1 END,
	updated_by = excluded.updated_by, updated_at = excluded.updated_at`

// PutSetting stores a setting. Redis has it after fleet.ApplySetting.
func (l *Ledger) PutSetting(ctx context.Context, s Setting) error {
	if !slices.Contains([]SettingKind{SettingPool, SettingTenant, SettingStrategy, SettingServices, SettingNode, SettingModel}, s.Kind) {
		return berth.Invalid("kind", "is not a kind of setting")
	}
	if whole := s.Kind == SettingStrategy || s.Kind == SettingServices; whole != (s.ID == "") || plain(s.ID) != s.ID {
		return berth.Invalid("id", "is not valid for this kind of setting")
	}
	_, err := l.exec(ctx, "put setting", putSetting, s.Kind, s.ID, string(s.Body), time.Now().UnixMilli(), plain(s.By))
	return err
}

// ChangeNodeSettings replaces the operator settings of a node by the result of change, and returns it. change may be called
// again after a concurrent change. Redis has the settings after fleet.ApplySetting.
func (l *Ledger) ChangeNodeSettings(
	ctx context.Context, nodeID, by string, change func(berth.NodeSettings) berth.NodeSettings,
) (berth.NodeSettings, error) {
	return changeSetting(ctx, l, SettingNode, nodeID, by, change)
}

// ChangeModelSettings replaces the operator settings of a model by the result of change, and returns it. change may be called
// again after a concurrent change. Redis has the settings after fleet.ApplySetting.
func (l *Ledger) ChangeModelSettings(
	ctx context.Context, model, by string, change func(berth.ModelSettings) berth.ModelSettings,
) (berth.ModelSettings, error) {
	return changeSetting(ctx, l, SettingModel, model, by, change)
}

// changeSetting replaces a setting by the result of change; a zero value deletes it.
func changeSetting[T any](ctx context.Context, l *Ledger, kind SettingKind, id, by string, change func(T) T) (T, error) {
	var zero T
	for {
		current, err := l.Setting(ctx, kind, id)
		if err != nil {
			return zero, err
		}
		settings, err := decodeSetting[T](current)
		if err != nil {
			return zero, err
		}
		settings = change(settings)
		var body []byte
		if !reflect.ValueOf(settings).IsZero() {
			if body, err = json.Marshal(settings); err != nil {
				return zero, fmt.Errorf("settings of a %s: %w", kind, err)
			}
		}
		written, err := l.exec(ctx, "change "+string(kind)+" settings", putSetting+` WHERE settings.version = $6`,
			kind, id, string(body), time.Now().UnixMilli(), plain(by), current.Version)
		if err != nil || written > 0 { // else the settings were changed concurrently: retry
			return settings, err
		}
	}
}

// NodeSettings returns the operator settings of a node, and whether there are any.
func (l *Ledger) NodeSettings(ctx context.Context, nodeID string) (settings berth.NodeSettings, ok bool, err error) {
	s, err := l.Setting(ctx, SettingNode, nodeID)
	if err != nil {
		return berth.NodeSettings{}, false, err
	}
	settings, err = decodeSetting[berth.NodeSettings](s)
	return settings, s.Version > 0, err
}

func decodeSetting[T any](s Setting) (v T, err error) {
	if len(s.Body) > 0 {
		err = json.Unmarshal(s.Body, &v)
	}
	return v, err
}

const selectSettings = `SELECT kind, id, body, version, applied >= version, updated_by, updated_at FROM settings`

func settingFields(s *Setting) []any {
	return []any{&s.Kind, &s.ID, (*[]byte)(&s.Body), &s.Version, &s.Applied, &s.By, storedTime{&s.UpdatedAt}}
}

// Settings returns all settings, by kind and id; those that are still to be deleted from Redis have no body.
func (l *Ledger) Settings(ctx context.Context) ([]Setting, error) {
	return list(ctx, l, "read settings", settingFields, selectSettings+` ORDER BY kind, id`)
}

// Setting returns one setting. Version is 0 where there is none.
func (l *Ledger) Setting(ctx context.Context, kind SettingKind, id string) (Setting, error) {
	s, err := scan(l.read.QueryRowContext(ctx, selectSettings+` WHERE kind = $1 AND id = $2`, kind, id), settingFields)
	if errors.Is(err, sql.ErrNoRows) {
		return Setting{Kind: kind, ID: id}, nil
	}
	return s, translate("read setting", err)
}

// MarkApplied notes that Redis has this version of a setting; the row of a deleted one is removed. It does nothing when
// the setting has changed since.
func (l *Ledger) MarkApplied(ctx context.Context, s Setting) error {
	if s.Applied && len(s.Body) > 0 {
		return nil
	}
	mark := `UPDATE settings SET applied = version`
	if len(s.Body) == 0 {
		mark = `DELETE FROM settings`
	}
	_, err := l.exec(ctx, "mark setting", mark+` WHERE kind = $1 AND id = $2 AND version = $3`, s.Kind, s.ID, s.Version)
	return err
}
