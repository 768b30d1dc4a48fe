package berth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The limits of API keys.
const (
	MaxKeyTitle  = 100 // characters
	MaxKeyModels = 200
	MaxKeyRate   = 1_000_000_000 // requests or tokens per minute
)

// KeyIDPrefix begins the ids of API keys.
const KeyIDPrefix = "key_"

// IsKeyID reports whether an id has the form of those of API keys, which no user has. It stands in the place of a user's id in what the calls of the key
// leave behind.
func IsKeyID(id string) bool {
	return strings.HasPrefix(id, KeyIDPrefix) && len(id) == len(KeyIDPrefix)+idLength
}

// APIKey is a key with which a program calls models by OpenAI's protocol. Its secret is known to its holder only.
type APIKey struct {
	ID string
	// TeamID is the team whose share its calls have, and AppID the application; without one, the key is an application of its own.
	TeamID, AppID string
	KeySettings
	CreatedAt time.Time
	CreatedBy string
	ExpiresAt time.Time // zero for never
	RevokedAt time.Time // zero while it is valid
	RevokedBy string
}

// KeySettings are what operators choose for a key.
type KeySettings struct {
	Title string `json:"title,omitempty"`
	// Hint is the end of the secret, by which holders recognise it.
	Hint string `json:"hint,omitempty"`
	// Models are those that the key may call, by name; empty for all.
	Models []string `json:"models,omitempty"`
	// RPM and TPM are the maximum numbers of requests and of tokens in a minute, and MaxCalls that of unfinished calls; 0 for no limit.
	RPM      int `json:"rpm,omitempty"`
	TPM      int `json:"tpm,omitempty"`
	MaxCalls int `json:"maxCalls,omitempty"`
	// ServiceTiers are the values of service_tier that choose another queue than the default; of others the key's calls are in the default queue.
	ServiceTiers []string `json:"serviceTiers,omitempty"`
	// EndUsers: the user that a request names waits beside the other users of the key, rather than with all its calls.
	EndUsers bool `json:"endUsers,omitempty"`
	// Durability is how chats are made: DurabilityDurable by default, or DurabilityDirect.
	Durability Durability `json:"durability,omitempty"`
	// Retention is how long the requests and answers of its calls are kept.
	Retention KeyRetention `json:"retention,omitempty"`
	// ReplaceResponses: a stored response that breaks off, of which its client may have read a part, is made again as another one.
	ReplaceResponses bool `json:"replaceResponses,omitempty"`
}

// KeyRetention is how long the requests and answers of the calls of a key are kept: one of the values below, or a duration such as 24h.
type KeyRetention string

// The retentions. Usage and settlement are kept with each.
const (
	RetentionAll      KeyRetention = "all"      // as those of tasks
	RetentionErrors   KeyRetention = "errors"   // of failed calls as those of tasks, of others as RetentionMetadata
	RetentionMetadata KeyRetention = "metadata" // until no retry of the client can join the call
	RetentionNone     KeyRetention = "none"     // nothing is stored: only of direct calls
)

// Keeps returns how long the texts of a call are kept. limited is false if they are kept as those of tasks.
func (r KeyRetention) Keeps(failed bool) (kept time.Duration, limited bool) {
	switch r {
	case "", RetentionAll:
		return 0, false
	case RetentionErrors:
		return 0, !failed
	case RetentionMetadata, RetentionNone:
		return 0, true
	}
	kept, err := time.ParseDuration(string(r))
	return kept, err == nil
}

// normalizeStorage checks the durability and the retention, which depend on each other.
func (s *KeySettings) normalizeStorage() error {
	if s.Durability == "" && s.Retention == RetentionNone {
		s.Durability = DurabilityDirect
	}
	s.Durability = cmp.Or(s.Durability, DurabilityDurable)
	if s.Retention == "" {
		s.Retention = map[Durability]KeyRetention{DurabilityDurable: RetentionAll, DurabilityDirect: RetentionNone}[s.Durability]
	}
	duration, err := time.ParseDuration(string(s.Retention))
	named := slices.Contains([]KeyRetention{RetentionAll, RetentionErrors, RetentionMetadata, RetentionNone}, s.Retention)
	switch {
	case s.Durability != DurabilityDurable && s.Durability != DurabilityDirect:
		return Invalid("durability", "must be %s or %s", DurabilityDurable, DurabilityDirect)
	case !named && (err != nil || duration <= 0):
		return Invalid("retention", "must be %s, %s, %s, %s or a duration such as 24h", RetentionAll, RetentionErrors, RetentionMetadata, RetentionNone)
	case s.Retention == RetentionNone && s.Durability == DurabilityDurable:
		return Invalid("retention", "must not be %s for durable calls, which store the request: set the durability to %s", RetentionNone, DurabilityDirect)
	case s.Retention != RetentionNone && s.Durability == DurabilityDirect:
		return Invalid("retention", "must be %s for direct calls, which store nothing", RetentionNone)
	case s.ReplaceResponses && s.Durability == DurabilityDirect:
		return Invalid("replaceResponses", "must be false for direct calls, whose responses are not stored")
	}
	return nil
}

// Durability is whether a call survives the loss of the process that makes it, and of the connection of its client.
type Durability string

// The durabilities.
const (
	DurabilityDurable Durability = "durable" // a workflow makes the call, and a retry of its client joins it
	DurabilityDirect  Durability = "direct"  // the call ends with the connection of its client
)

// keyTiers are the values of service_tier that a key may allow. The others, auto and default, are those of the default queue.
var keyTiers = []string{"flex", "priority", "scale"}

// Normalize checks the key without its id. It returns CodeInvalid for the first invalid field.
func (k *APIKey) Normalize() error {
	if k.TeamID != "" {
		if err := ValidID("teamId", k.TeamID); err != nil {
			return err
		}
	}
	if k.AppID != "" {
		if err := ValidID("appId", k.AppID); err != nil {
			return err
		}
	}
	return k.KeySettings.Normalize()
}

// Normalize checks the settings, and leaves out repeated models and service tiers. It returns CodeInvalid for the first invalid field.
func (s *KeySettings) Normalize() (err error) {
	if s.Title, err = Name("title", s.Title, MaxKeyTitle); err != nil {
		return err
	}
	if len(s.Models) > MaxKeyModels {
		return Invalid("models", "must have at most %d entries; without any, the key may call all models", MaxKeyModels)
	}
	if err := cmp.Or(keyLimit("rpm", s.RPM), keyLimit("tpm", s.TPM), keyLimit("maxCalls", s.MaxCalls)); err != nil {
		return err
	}
	for i, t := range s.ServiceTiers {
		if !slices.Contains(keyTiers, t) {
			return Invalid(fmt.Sprintf("serviceTiers[%d]", i), "must be one of %s; auto and default are always allowed", strings.Join(keyTiers, ", "))
		}
	}
	if err := s.normalizeStorage(); err != nil {
		return err
	}
	s.Models, s.ServiceTiers = Distinct(s.Models), Distinct(s.ServiceTiers)
	return nil
}

func keyLimit(field string, n int) error {
	if n < 0 || n > MaxKeyRate {
		return Invalid(field, "must be a number from 0, for no limit, to %d", MaxKeyRate)
	}
	return nil
}

// Distinct returns the values in their order, each once.
func Distinct[T comparable](values []T) (out []T) {
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Group returns the levels at which the calls of the key wait. endUser is that of the request.
func (k APIKey) Group(endUser string) Group {
	g := Group{Team: k.TeamID, App: cmp.Or(k.AppID, k.ID)}
	if k.EndUsers {
		g.EndUser = endUser
	}
	return g
}

// Allows reports whether the key may call a model.
func (k APIKey) Allows(model string) bool {
	return len(k.Models) == 0 || slices.Contains(k.Models, model)
}

// AllowsTier reports whether the calls of the key may have a service tier, other than the default.
func (k APIKey) AllowsTier(tier string) bool { return slices.Contains(k.ServiceTiers, tier) }

// BudgetKind is what a budget is of.
type BudgetKind string

// What budgets are of.
const (
	BudgetKey  BudgetKind = "key"
	BudgetTeam BudgetKind = "team"
)

// BudgetPeriod is after which time the use of a budget begins again with 0. Periods begin at midnight UTC: of each day, of Monday, of the first
// day of the month.
type BudgetPeriod string

// The periods.
const (
	PeriodDay   BudgetPeriod = "day"
	PeriodWeek  BudgetPeriod = "week"
	PeriodMonth BudgetPeriod = "month"
	PeriodTotal BudgetPeriod = "total" // never
)

// Began returns when the period of a time began, zero for PeriodTotal.
func (p BudgetPeriod) Began(at time.Time) time.Time {
	at = at.UTC()
	day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	switch p {
	case PeriodDay:
		return day
	case PeriodWeek:
		return day.AddDate(0, 0, -(int(at.Weekday())+6)%7)
	case PeriodMonth:
		return day.AddDate(0, 0, 1-at.Day())
	default:
		return time.Time{}
	}
}

// Ends returns when the period of a time ends, zero for PeriodTotal.
func (p BudgetPeriod) Ends(at time.Time) time.Time {
	began := p.Began(at)
	switch p {
	case PeriodDay:
		return began.AddDate(0, 0, 1)
	case PeriodWeek:
		return began.AddDate(0, 0, 7)
	case PeriodMonth:
		return began.AddDate(0, 1, 0)
	default:
		return time.Time{}
	}
}

// Budget is what the calls of a key or a team may cost in a period.
type Budget struct {
	Kind    BudgetKind
	ID      string // of the key or team
	Credits Credits
	Period  BudgetPeriod
	// Used is what the calls of the present period have cost, with what is reserved for those that run.
	Used      Credits
	UpdatedAt time.Time
	UpdatedBy string
}

// Validate returns CodeInvalid for the first invalid field.
func (b Budget) Validate() error {
	periods := []BudgetPeriod{PeriodDay, PeriodWeek, PeriodMonth, PeriodTotal}
	switch {
	case b.Kind != BudgetKey && b.Kind != BudgetTeam:
		return Invalid("kind", "must be %s or %s", BudgetKey, BudgetTeam)
	case b.Credits < 0 || b.Credits > MaxCredits:
		return Invalid("credits", "must be a number from 0 to %s", MaxCredits)
	case !slices.Contains(periods, b.Period):
		return Invalid("period", "must be one of %v", periods)
	}
	return ValidID("id", b.ID)
}
