//go:build faults

package tests

import "testing"

// B1, L12: as TestTask_RedisLosesDataWhileTasksWait_AllContinueOnce, with a thousand tasks.
func TestTask_RedisLosesDataWhileThousandWait_AllContinueOnce(t *testing.T) {
	t.Parallel()
	redisLossWhileWaiting(t, 1000)
}
