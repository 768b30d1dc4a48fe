package berth

import "time"

// MaxModelCap is the largest cap of a model, as in the schema of the routing file.
const MaxModelCap = 10_000

// ModelSettings are the operator's settings of a model. They take precedence over its configuration in the routing file. The limits of a
// model are those of its only upstream; where it has several, each has its own.
type ModelSettings struct {
	LimitSettings
	Upstreams map[string]LimitSettings `json:"upstreams,omitempty"`
}

// LimitSettings are the operator's settings of a model or of an upstream.
type LimitSettings struct {
	Cap    *int   `json:"cap,omitempty"` // nil: as configured, also below
	RPM    *int   `json:"rpm,omitempty"` // requests per minute; 0 for no limit
	TPM    *int   `json:"tpm,omitempty"` // tokens per minute; 0 for no limit
	Paused bool   `json:"paused,omitempty"`
	Reason string `json:"reason,omitempty"` // of the pause
	// ResumedAt is the time of the last resumption, which ended every pause. It increases with each.
	ResumedAt time.Time `json:"resumedAt,omitzero"`
}
