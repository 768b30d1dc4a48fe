package berth_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestRefusal_EachCode_StatesReasonsAndMissingCapabilities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		refusal berth.Refusal
		want    string
	}{
		"full": {
			berth.Refusal{Code: berth.CodeNodeFull, PoolID: "gpu", Reasons: map[berth.ExcludeReason]int{"full": 2, "suspect": 1}},
			"every eligible node of pool gpu is full: 2 full, 1 suspect",
		},
		"capability missing": {
			berth.Refusal{
				Code: berth.CodeNoNode, PoolID: "ocr", Missing: []string{"ocr"},
				Reasons: map[berth.ExcludeReason]int{"capability_missing": 3, "service_unavailable": 1},
			},
			"no eligible node of pool ocr: no registered node has ocr, 1 service unavailable",
		},
		"empty pool": {berth.Refusal{Code: berth.CodeNoNode, PoolID: "ocr"}, "no eligible node of pool ocr: the pool has no nodes"},
		"no pool":    {berth.Refusal{Code: berth.CodeNoNode}, "no eligible node: the pool has no nodes"},
		"grace": {
			berth.Refusal{Code: berth.CodeUnavailable, RetryAfter: 1234 * time.Millisecond},
			"node assignment resumes in 1.2s: Redis may have lost data",
		},
		"own message": {berth.Refusal{Code: berth.CodeNoLicence, Message: "all 3 licences are in use"}, "all 3 licences are in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, &tc.refusal, tc.want)
		})
	}
}

func TestCodeOf_WrappedRefusal_ReturnsItsCode(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("assign: %w", &berth.Refusal{Code: berth.CodeNodeFull})
	require.Equal(t, berth.CodeNodeFull, berth.CodeOf(err))
	require.Equal(t, berth.CodeInternal, berth.CodeOf(errors.New("boom")))
	require.Empty(t, berth.CodeOf(nil))
}
