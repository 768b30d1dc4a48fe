package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
	"berth/lua"
)

// SettingKind is what a setting of the fleet is about.
type SettingKind string

// The kinds of settings (L8). Those of the fleet as a whole have no id.
const (
	SettingPool     SettingKind = "pool"     // berth.Pool
	SettingTenant   SettingKind = "tenant"   // the pool's id, a JSON text
	SettingStrategy SettingKind = "strategy" // berth.FleetConfig
	SettingServices SettingKind = "services" // any JSON object
	SettingNode     SettingKind = "node"     // berth.NodeOrders; written by OrderNode
)

// Setting is something an operator set about the fleet.
type Setting struct {
	Kind SettingKind
	ID   string
	// Body is valid for its kind; empty, it is deleted.
	Body json.RawMessage
	By   string
	// Version and UpdatedAt are the ledger's.
	Version   int64
	UpdatedAt time.Time
	// Applied tells whether Redis has it.
	Applied bool
}

// A version is at least the time in ms, so that it rises even where the row was deleted in between.
const putSetting = `INSERT INTO settings (kind, id, body, version, applied, updated_by, updated_at)
	VALUES ($1, $2, $3, $4, 0, $5, $4) ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body,
	version = CASE WHEN settings.version < excluded.version THEN excluded.version ELSE settings.version + 1 END,
	updated_by = excluded.updated_by, updated_at = excluded.updated_at`

// PutSetting keeps what an operator set. Redis has it after ApplySetting.
func (l *Ledger) PutSetting(ctx context.Context, s Setting) error {
	if !slices.Contains([]SettingKind{SettingPool, SettingTenant, SettingStrategy, SettingServices, SettingNode}, s.Kind) {
		return berth.Invalid("kind", "is no kind of setting")
	}
	if whole := s.Kind == SettingStrategy || s.Kind == SettingServices; whole != (s.ID == "") || plain(s.ID) != s.ID {
		return berth.Invalid("id", "does not name such a setting")
	}
	return l.inTx(ctx, "put setting", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, putSetting, s.Kind, s.ID, string(s.Body), time.Now().UnixMilli(), plain(s.By))
		return err
	})
}

// OrderNode changes the operator's orders for a node from what stands to what change makes of it (S11), and answers that.
// Redis has them after ApplySetting.
func (l *Ledger) OrderNode(
	ctx context.Context, nodeID, by string, change func(berth.NodeOrders) berth.NodeOrders,
) (berth.NodeOrders, error) {
	for {
		was, err := l.setting(ctx, SettingNode, nodeID)
		if err != nil {
			return berth.NodeOrders{}, err
		}
		orders, err := ordersIn(was)
		if err != nil {
			return berth.NodeOrders{}, err
		}
		orders = change(orders)
		var body []byte
		if orders != (berth.NodeOrders{}) {
			if body, err = json.Marshal(orders); err != nil {
				return berth.NodeOrders{}, fmt.Errorf("orders of a node: %w", err)
			}
		}
		var written int64
		err = l.inTx(ctx, "order node", func(tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx, putSetting+` WHERE settings.version = $6`,
				SettingNode, nodeID, string(body), time.Now().UnixMilli(), plain(by), was.Version)
			if err == nil {
				written, err = res.RowsAffected()
			}
			return err
		})
		if err != nil || written > 0 { // else somebody else gave an order meanwhile
			return orders, err
		}
	}
}

// Orders are the operator's orders for a node, and whether there are any.
func (l *Ledger) Orders(ctx context.Context, nodeID string) (orders berth.NodeOrders, ordered bool, err error) {
	s, err := l.setting(ctx, SettingNode, nodeID)
	if err != nil {
		return berth.NodeOrders{}, false, err
	}
	orders, err = ordersIn(s)
	return orders, s.Version > 0, err
}

func ordersIn(s Setting) (o berth.NodeOrders, err error) {
	if len(s.Body) > 0 {
		err = json.Unmarshal(s.Body, &o)
	}
	return o, err
}

const selectSettings = `SELECT kind, id, body, version, applied, updated_by, updated_at FROM settings`

func scanSetting(row scanner) (Setting, error) {
	var s Setting
	var body string
	var applied, at int64
	err := row.Scan(&s.Kind, &s.ID, &body, &s.Version, &applied, &s.By, &at)
	s.Body, s.Applied, s.UpdatedAt = json.RawMessage(body), applied >= s.Version, fromMillis(at)
	return s, err
}

// Settings are all settings, by kind and id; those that are still to be deleted from Redis have no body.
func (l *Ledger) Settings(ctx context.Context) ([]Setting, error) {
	rows, err := l.read.QueryContext(ctx, selectSettings+` ORDER BY kind, id`)
	return collect("read settings", rows, err, scanSetting)
}

// setting reads one; without version and body when there is none.
func (l *Ledger) setting(ctx context.Context, kind SettingKind, id string) (Setting, error) {
	s, err := scanSetting(l.read.QueryRowContext(ctx, selectSettings+` WHERE kind = $1 AND id = $2`, kind, id))
	if errors.Is(err, sql.ErrNoRows) {
		return Setting{Kind: kind, ID: id}, nil
	}
	return s, translate("read setting", err)
}

// ApplySetting writes the setting to Redis as the ledger has it then. Of several who change it at once, the last one
// to write looks again and writes what is in the ledger: in the end both have the same. Whatever fails on the way is
// made up for by the next call, or by RestoreFleet.
func (l *Ledger) ApplySetting(ctx context.Context, scripts *lua.Scripts, kind SettingKind, id string) error {
	s, err := l.setting(ctx, kind, id)
	if err != nil || s.Version == 0 {
		return err
	}
	for {
		if err := writeSetting(ctx, scripts, s); err != nil {
			return fmt.Errorf("write %s %s to Redis: %w", kind, id, err)
		}
		now, err := l.setting(ctx, kind, id)
		if err != nil {
			return err
		}
		if now.Version == s.Version {
			break
		}
		s = now
	}
	if s.Applied && len(s.Body) > 0 {
		return nil
	}
	return l.inTx(ctx, "mark setting", func(tx *sql.Tx) error {
		if len(s.Body) == 0 {
			_, err := tx.ExecContext(ctx, `DELETE FROM settings WHERE kind = $1 AND id = $2 AND version = $3`, kind, id, s.Version)
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE settings SET applied = version WHERE kind = $1 AND id = $2 AND version = $3`,
			kind, id, s.Version)
		return err
	})
}

func writeSetting(ctx context.Context, scripts *lua.Scripts, s Setting) error {
	gone := len(s.Body) == 0
	switch s.Kind {
	case SettingPool:
		if gone {
			return scripts.DeletePool(ctx, s.ID)
		}
		var p berth.Pool
		if err := json.Unmarshal(s.Body, &p); err != nil {
			return err
		}
		_, err := scripts.DefinePool(ctx, p, false)
		return err
	case SettingTenant:
		var pool string
		if !gone {
			if err := json.Unmarshal(s.Body, &pool); err != nil {
				return err
			}
		}
		return scripts.BindTenant(ctx, s.ID, pool)
	case SettingStrategy:
		c := berth.DefaultFleetConfig()
		if !gone {
			if err := json.Unmarshal(s.Body, &c); err != nil {
				return err
			}
		}
		return scripts.PutFleetConfig(ctx, c)
	case SettingNode:
		orders, err := ordersIn(s)
		if err != nil {
			return err
		}
		hold := lua.Hold{Cordoned: orders.Cordoned}
		if !orders.DrainUntil.IsZero() {
			hold.Drain = max(time.Until(orders.DrainUntil), time.Millisecond)
		}
		return scripts.HoldNode(ctx, s.ID, hold)
	default:
		if gone {
			return scripts.PutServices(ctx, json.RawMessage(`{}`))
		}
		return scripts.PutServices(ctx, s.Body)
	}
}

// RestoreFleet writes to Redis what operators set and it does not have: all of it after it was wiped, and changes that
// did not reach it (L12). What is there stays. It answers how many it wrote. Safe to call at any time, by any number of
// processes; when nothing is missing it costs one query and one round trip.
func (l *Ledger) RestoreFleet(ctx context.Context, scripts *lua.Scripts) (int, error) {
	settings, err := l.Settings(ctx)
	if err != nil || len(settings) == 0 {
		return 0, err
	}
	there, err := settingsIn(ctx, scripts, settings)
	if err != nil {
		return 0, err
	}
	written := 0
	for _, s := range settings {
		if s.Applied && there[[2]string{string(s.Kind), s.ID}] {
			continue
		}
		if err := l.ApplySetting(ctx, scripts, s.Kind, s.ID); err != nil {
			return written, err
		}
		written++
	}
	return written, nil
}

// settingsIn tells which settings Redis has, by kind and id; of the orders for nodes only those that are asked for.
func settingsIn(ctx context.Context, scripts *lua.Scripts, asked []Setting) (map[[2]string]bool, error) {
	k := scripts.Keys()
	var pools, tenants *redis.StringSliceCmd
	var strategy, services *redis.IntCmd
	orders := map[string]*redis.IntCmd{}
	_, err := scripts.Redis().Pipelined(ctx, func(p redis.Pipeliner) error {
		pools, tenants = p.HKeys(ctx, k.ConfigPools()), p.HKeys(ctx, k.ConfigTenants())
		strategy, services = p.Exists(ctx, k.ConfigStrategy()), p.Exists(ctx, k.ConfigServices())
		for _, s := range asked {
			if s.Kind == SettingNode {
				orders[s.ID] = p.Exists(ctx, k.NodeHold(s.ID))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the fleet's settings in Redis: %w", err)
	}
	there := map[[2]string]bool{
		{string(SettingStrategy), ""}: strategy.Val() == 1, {string(SettingServices), ""}: services.Val() == 1,
	}
	for id, exists := range orders {
		there[[2]string{string(SettingNode), id}] = exists.Val() == 1
	}
	for _, id := range pools.Val() {
		there[[2]string{string(SettingPool), id}] = true
	}
	for _, id := range tenants.Val() {
		there[[2]string{string(SettingTenant), id}] = true
	}
	return there, nil
}
