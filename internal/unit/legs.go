package unit

import (
	"encoding/json"
	"slices"
	"time"

	"berth"
)

// legs are the stays of participants on one copy, as its lists of participants show them.
type legs struct {
	present map[string]berth.ConferenceLeg // by id
	changed []berth.ConferenceLeg          // joined or left, and not accepted by the data proxy yet
}

// update compares a list of participants, as in the live information, with the one before. A driver without it has no legs.
func (l *legs) update(participants json.RawMessage, now time.Time) {
	var listed []struct {
		SID      string    `json:"sid"`
		Identity string    `json:"identity"`
		Name     string    `json:"name"`
		JoinedAt time.Time `json:"joinedAt"`
	}
	if participants != nil && json.Unmarshal(participants, &listed) != nil {
		return
	}
	if l.present == nil {
		l.present = map[string]berth.ConferenceLeg{}
	}
	there := map[string]bool{}
	for _, p := range listed {
		if p.SID == "" {
			continue
		}
		there[p.SID] = true
		if _, known := l.present[p.SID]; !known {
			leg := berth.ConferenceLeg{ID: p.SID, Identity: p.Identity, Name: p.Name, JoinedAt: p.JoinedAt}
			l.present[p.SID] = leg
			l.changed = append(l.changed, leg)
		}
	}
	for id, leg := range l.present {
		if !there[id] {
			delete(l.present, id)
			leg.LeftAt, leg.Reason = now.UTC().Truncate(time.Millisecond), berth.LegLeft
			l.changed = append(l.changed, leg)
		}
	}
}

// due returns the changes of the next report.
func (l *legs) due() []berth.ConferenceLeg {
	return slices.Clone(l.changed[:min(len(l.changed), berth.MaxReportedLegs)])
}

// accepted removes the changes that a report has contained.
func (l *legs) accepted(sent []berth.ConferenceLeg) { l.changed = l.changed[len(sent):] }
