package lua

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"berth"
)

// jobRow is a job as stored in Redis; the script adds everything from NodeID on.
type jobRow struct {
	JobID      string `json:"job_id"`
	UserID     string `json:"user_id,omitempty"` // absent from rows of earlier versions
	SessionID  string `json:"session_id"`
	TurnID     string `json:"turn_id"`
	RequestID  string `json:"request_id"`
	Dispatch   int    `json:"dispatch"`
	NodeID     string `json:"node_id,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	LeaseID    string `json:"lease_id,omitempty"`
	Pool       string `json:"pool,omitempty"`
	Strategy   string `json:"strategy,omitempty"`
	Affinity   string `json:"affinity,omitempty"`
	Missed     string `json:"missed,omitempty"`
	CreatedAt  int64  `json:"created_at_ms,omitempty"`
}

// JobState is a dispatched job as stored in Redis, for display; its workflow is authoritative.
type JobState struct {
	UserID, SessionID, TurnID, RequestID string
	Dispatch                             int
	CreatedAt                            time.Time
	berth.Assignment
}

// FindJob returns a job; ok is false when Redis does not have it, or no longer has it.
func (s *Scripts) FindJob(ctx context.Context, jobID string) (j JobState, ok bool, err error) {
	row, ok, err := found(s.rdb.Get(ctx, s.keys.Job(jobID)), "job")
	if !ok {
		return j, false, err
	}
	j, err = parseJob(row)
	return j, err == nil, err
}

func parseJob(row string) (JobState, error) {
	var r jobRow
	if err := json.Unmarshal([]byte(row), &r); err != nil {
		return JobState{}, fmt.Errorf("job %q: %w", row, err)
	}
	return JobState{
		UserID: r.UserID, SessionID: r.SessionID, TurnID: r.TurnID, RequestID: r.RequestID, Dispatch: r.Dispatch,
		CreatedAt: time.UnixMilli(r.CreatedAt),
		Assignment: berth.Assignment{
			LeaseID: r.LeaseID, JobID: r.JobID, NodeRef: berth.NodeRef{NodeID: r.NodeID, Generation: r.Generation}, PoolID: r.Pool,
			Strategy: berth.Strategy(r.Strategy), Affinity: berth.Affinity(r.Affinity), Missed: berth.ExcludeReason(r.Missed),
		},
	}, nil
}
