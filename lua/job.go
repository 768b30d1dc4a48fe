package lua

import (
	"context"
	"encoding/json"
	"fmt"

	"berth"
)

// JobState is a dispatched job as stored in Redis, for display; its workflow is authoritative.
type JobState struct {
	berth.JobRequest
	Assignment  berth.Assignment `json:"assignment"`
	CreatedAtMs int64            `json:"createdAtMs"`
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

func parseJob(row string) (j JobState, err error) {
	if err := json.Unmarshal([]byte(row), &j); err != nil {
		return JobState{}, fmt.Errorf("job %q: %w", row, err)
	}
	j.Assignment.JobID = j.JobID
	return j, nil
}
