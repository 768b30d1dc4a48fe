package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/client"
)

// G11: each level has a line with what runs, what waits and why, and the levels that are not listed are counted.
func TestQueueTree_Levels_PrintedWithWhy(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, printLevels(&out, client.ModelLevels{
		Model: "chat", InUse: 5, Waiting: 90, Why: client.WhyUpstreams,
		Upstreams: []client.UpstreamState{
			{Name: "eu", State: client.UpstreamFull, InUse: 5, Cap: 5},
			{Name: "us", State: client.UpstreamPaused, Cap: 3, ModelPause: client.ModelPause{Paused: true, PausedBy: "operator", Reason: "moving"}},
			{Name: "cn", State: client.UpstreamPace, Cap: 3, NextGrantMs: 1234},
			{Name: "own", State: client.UpstreamProvider, Cap: 3},
		},
		Levels: []client.CallLevel{{
			Kind: "queue", ID: "q", Weight: 8, InUse: 5, Waiting: 90, Why: client.WhyNext,
			Levels: []client.CallLevel{
				{Kind: "team", ID: "搜索", Weight: 2.5, InUse: 4, Waiting: 50, Limit: 4, LimitUsed: 4, Why: client.WhyLimit, Levels: []client.CallLevel{
					{Kind: "app", ID: "a", Weight: 1, InUse: 4, Waiting: 50, Why: client.WhyAbove, Levels: []client.CallLevel{
						{Kind: "user", ID: "u", Weight: 1, InUse: 4, Waiting: 50, Why: client.WhyAbove, Levels: []client.CallLevel{
							{Kind: "endUser", Weight: 1, InUse: 4, Waiting: 50, Why: client.WhyAbove},
						}},
					}},
				}},
				{Kind: "user", ID: "v", Weight: 1, Waiting: 3, Why: client.WhyOrder, Ahead: 7},
				{Kind: "user", ID: "w", Weight: 1, Waiting: 1, Why: client.WhyUpstreams, Upstreams: []string{"us", "own"}},
			},
		}},
	}))
	require.Equal(t, `chat: 5 run, 90 wait; no upstream takes a call now

UPSTREAM  IN USE  CAP  STATE
eu        5       5    all slots in use
us        0       3    paused by operator: moving
cn        0       3    next call in 1.2s, by its limits per minute
own       0       3    its provider has no free slot

LEVEL                RUN  WAIT  WEIGHT  LIMIT  WHY IT WAITS
queue q              5    90    8       -      next
  team 搜索          4    50    2.5     4/4    at its limit
    application a    4    50    1       -      a level above is at its limit
      user u         4    50    1       -      a level above is at its limit
        no end user  4    50    1       -      a level above is at its limit
  user v             0    3     1       -      7 before it
  user w             0    1     1       -      only us, own can serve the call
  others             1    36
`, out.String())
}
