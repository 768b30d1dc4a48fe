package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/config"
)

func TestRolloutSet_InvalidSettings_AreNamed(t *testing.T) { // B6
	t.Parallel()
	for want, c := range map[string]rolloutSet{
		"--deployment (BERTH_DEPLOYMENT): invalid name": {rollout: rollout{Rollout: config.Rollout{Deployment: "a b.c"}}, Wait: time.Minute},
		"--build-id (BERTH_BUILD_ID): invalid version":  {rollout: rollout{Rollout: config.Rollout{Deployment: "a"}}, Version: "1:0", Wait: time.Minute},
		"--wait: must be above 0":                       {rollout: rollout{Rollout: config.Rollout{Deployment: "a"}}, Wait: -time.Second},
		"state the worker deployment":                   {Wait: time.Minute},
	} {
		require.ErrorContains(t, c.Run(t.Context()), want)
	}
}
