package berth

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Refusal is the error of work that cannot be placed now: no node or media unit is available, or no licence is free. The
// API shows it to the caller, and a Temporal application error of the same code carries it as its detail.
type Refusal struct {
	// Code is CodeNodeFull, CodeNoNode or CodeNoLicence, or CodeUnavailable while nothing is assigned at all.
	Code   Code   `json:"code,omitempty"`
	PoolID string `json:"poolId,omitempty"`
	// Message replaces the text that Error derives from the other fields.
	Message string `json:"message,omitempty"`
	// Reasons counts the pool's nodes that were excluded, by reason.
	Reasons map[ExcludeReason]int `json:"reasons,omitempty"`
	// Missing lists the required capabilities that no registered node has, or that the closest node lacks.
	Missing []string `json:"missing,omitempty"`
	// Services are those that the work needs, where nodes were excluded because they do not declare all of them.
	Services []string `json:"services,omitempty"`
	// RetryAfter is how long nothing will be assigned; 0 when that is not known.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	// SubmissionID identifies the request that was refused. The workflow sets it, so that a later request with the same
	// id can tell an earlier outcome, which Temporal keeps, from its own.
	SubmissionID string `json:"submissionId,omitempty"`
}

// Error describes the refusal for the caller.
func (r *Refusal) Error() string {
	if r.Message != "" {
		return r.Message
	}
	nodes := "node"
	if r.PoolID != "" {
		nodes = "node of pool " + r.PoolID
	}
	switch r.Code {
	case CodeNodeFull:
		return "every eligible " + nodes + " is full" + r.because("")
	case CodeUnavailable:
		return fmt.Sprintf("node assignment resumes in %v: Redis may have lost data", r.RetryAfter.Round(100*time.Millisecond))
	default:
		return "no eligible " + nodes + r.because("the pool has no nodes")
	}
}

// because lists the missing capabilities and the excluded nodes, or returns none when there are neither.
func (r *Refusal) because(none string) string {
	var why []string
	if len(r.Missing) > 0 {
		why = append(why, "no registered node has "+strings.Join(r.Missing, ", "))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		if reason != ExcludeCapabilityMissing || len(r.Missing) == 0 {
			text := fmt.Sprintf("%d %s", r.Reasons[reason], strings.ReplaceAll(string(reason), "_", " "))
			if reason == ExcludeServiceMissing && len(r.Services) > 0 {
				text += " (needs " + strings.Join(r.Services, ", ") + ")"
			}
			why = append(why, text)
		}
	}
	if len(why) == 0 && none != "" {
		why = []string{none}
	}
	if len(why) == 0 {
		return ""
	}
	return ": " + strings.Join(why, ", ")
}
