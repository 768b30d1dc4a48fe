package lua

import (
	"context"
	"strings"

	"berth"
)

// Codes of decide_session_pool.
const (
	SessionExists = "EXISTS"  // kept
	SessionReset  = "RESET"   // the language pair has changed
	SessionNew    = "NEW"     // decided
	SessionNoPool = "NO_POOL" // no pool is eligible
	SessionStale  = "STALE"   // a later version of the row was decided
)

// SessionPoolRequest is the input of DecideSessionPool.
type SessionPoolRequest struct {
	// SessionID is unique among the sessions of the user. Key is that of its row.
	SessionID, Key, SrcLang, TgtLang string
	// Capabilities are those that serve the language pair, see fleet.Snapshot. By default that of the very pair.
	Capabilities []string
	// UserID owns the session, on behalf of TenantID where that is set; both are stored with the decision. The script reads
	// the pool to which the tenant is bound, so that a new binding takes effect immediately; it uses the pool if that
	// serves the languages.
	UserID, TenantID string
	// Version is that of the session's row. Of two changes that arrive in the other order the later one stays.
	Version    int64
	RoutingKey string // the tenant's id, or another key of sessions that use the same pool
	// TenantPool is the pool to which the tenant was bound when the caller last read it: it is used while Redis may have
	// lost the binding.
	TenantPool string
	Eligible   []string // in the same order in all processes
	Affinity   bool     // choose by a stable hash of the routing key; else the first eligible pool
	Seed       uint32   // of the hash
}

// DecideSessionPool keeps or decides the pool of a session's jobs. It returns SessionExists, SessionReset or SessionNew with
// the pool, or SessionNoPool or SessionStale when nothing changed.
func (s *Scripts) DecideSessionPool(ctx context.Context, q SessionPoolRequest) (code, pool string, err error) {
	hash := int64(-1)
	if q.Affinity {
		hash = int64(berth.RoutingHash(q.RoutingKey, q.Seed))
	}
	capabilities := q.Capabilities
	if len(capabilities) == 0 {
		capabilities = []string{berth.TranslateCapability(q.SrcLang, q.TgtLang)}
	}
	args := with([]any{
		q.SrcLang, q.TgtLang, q.RoutingKey, hash, strings.Join(capabilities, "\n"), s.keys.SessionUpdated(),
		q.UserID, q.TenantID, q.TenantPool, q.Version, q.Key,
	}, q.Eligible...)
	keys := []string{s.keys.Session(q.UserID, q.SessionID), s.keys.ConfigTenants(), s.keys.ConfigPools(), s.keys.Guard()}
	r := s.call(ctx, "decide_session_pool", keys, args...)
	return r.text(), r.text(), r.done()
}

// FindSession returns a user's session; ok is false when Redis does not have it, or no longer has it.
func (s *Scripts) FindSession(ctx context.Context, userID, sessionID string) (out berth.Session, ok bool, err error) {
	f, err := s.hash(ctx, s.keys.Session(userID, sessionID), "session")
	if err != nil || f["src_lang"] == "" {
		return out, false, err
	}
	return berth.Session{
		ID: sessionID, UserID: userID, Key: f["key"], TenantID: f["tenant_id"], SrcLang: f["src_lang"], TgtLang: f["tgt_lang"], PreferredPool: f["preferred_pool"],
		RoutingKey: f["routing_key"], CurrentTurnID: f["current_turn_id"], UpdatedAt: msTime(f["updated_at_ms"]),
	}, true, nil
}
