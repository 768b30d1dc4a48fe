package activities

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
)

// refusal is why a decision gave no node: an application error whose type is the code (node_full, no_node,
// unavailable, turn_finalized) and whose detail is a berth.Refusal. It is nil when the decision gave one. Temporal
// does not try it again: its caller knows whether it can wait.
func refusal(d lua.Decision) error {
	detail := berth.Refusal{Reasons: d.Passed, Missing: d.Missing}
	switch d.Code {
	case lua.AssignOK, lua.AssignExists:
		return nil
	case lua.AssignFull:
		return refused(berth.CodeNodeFull, detail, nil, "every node of pool %s that could take it is full%s", d.PoolID, because(detail))
	case lua.AssignNone:
		return refused(berth.CodeNoNode, detail, nil, "no node of pool %s can take it%s", d.PoolID, because(detail))
	case lua.GuardGrace:
		return refused(berth.CodeUnavailable, detail, nil,
			"Redis may have lost data: nothing is assigned for another %v", d.Wait.Round(100*time.Millisecond))
	case lua.JobTurnEnded:
		return refused(berth.CodeTurnFinalized, detail, nil, "the turn is finalized")
	default:
		return refused(berth.CodeInternal, detail, fmt.Errorf("unknown code %q", d.Code), "the decision was not understood")
	}
}

// refusalFor is refusal, and says so where each required capability is on some node and none has all (S4).
func refusalFor(required []string, now *fleet.Snapshot, d lua.Decision) error {
	if d.Code == lua.AssignNone && len(d.Missing) == 0 {
		if lacks, why := now.Apart(required); why != "" {
			detail := berth.Refusal{Reasons: d.Passed, Missing: lacks}
			return refused(berth.CodeNoNode, detail, nil, "no node of pool %s can take it: %s", d.PoolID, why)
		}
	}
	return refusal(d)
}

// undecided is a decision that could not be asked for, or whose answer was lost.
func undecided(err error) error {
	var known *berth.Error
	if errors.As(err, &known) {
		return refused(known.Code, berth.Refusal{}, err, "%s", known.Message)
	}
	return refused(berth.CodeUnavailable, berth.Refusal{}, err, "the fleet's state cannot be reached; try again in a few seconds")
}

func refused(code berth.Code, detail berth.Refusal, cause error, format string, args ...any) error {
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf(format, args...), string(code), temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: hideCause(cause), Details: []any{detail},
	})
}

// because tells a refusal's detail to people.
func because(r berth.Refusal) string {
	var why []string
	if len(r.Missing) > 0 {
		why = append(why, "no node has "+strings.Join(r.Missing, ", "))
	}
	for reason, n := range r.Reasons {
		if reason != berth.ExcludeCapabilityMissing {
			why = append(why, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(reason), "_", " ")))
		}
	}
	if len(why) == 0 {
		return ""
	}
	slices.Sort(why)
	return ": " + strings.Join(why, "; ")
}
