package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/client"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/lua"
)

const twoUpstreams = `
providers:
  near: {baseURL: "http://127.0.0.1:1/v1"}
  far: {baseURL: "http://127.0.0.1:2/v1"}
models:
  duo: {aliases: [two], upstreams: [{provider: near, cap: 1, contextTokens: 20000}, {provider: far, cap: 1, contextTokens: 60000, rank: 2}]}
routes: {default: {paid: duo, free: duo}, vision: {paid: duo, free: duo}}
`

// withRouting makes the harness use a routing file, whose models are polled.
func withRouting(t *testing.T, text string) (*harness, *llm.Catalog) {
	t.Helper()
	content, err := llm.ParseContent("routing.yaml", text)
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{})
	require.NoError(t, err)
	h := newHarness(t, func(d *api.Deps) { d.Routing = routing.Fixed(catalog) })
	for _, m := range catalog.Models() {
		require.NoError(t, h.client.ZAdd(t.Context(), h.scripts.Keys().Pollers(), redis.Z{
			Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: berth.ModelTaskQueue(m.Name),
		}).Err())
	}
	return h, catalog
}

// G11, G12: an operator reads what runs and waits on each level of a model, and why.
func TestModelLevels_CallsWait_EachLevelStatesWhy(t *testing.T) {
	t.Parallel()
	type call struct {
		team, app, user string
		needs           lua.Needs
	}
	type in struct {
		*harness

		call func(c call)
	}
	alone := call{user: "u"}
	for name, tc := range map[string]struct {
		arrange  func(t *testing.T, h in)
		query    string
		why      string
		upstream map[string]string
		levels   []string
	}{
		"none": {
			arrange: func(*testing.T, in) {}, upstream: map[string]string{"near": client.UpstreamOpen, "far": client.UpstreamOpen},
		},
		"all slots in use": {
			arrange: func(_ *testing.T, h in) {
				for range 3 {
					h.call(alone)
				}
				h.call(call{user: "v"})
			},
			why: client.WhyUpstreams, upstream: map[string]string{"near": client.UpstreamFull, "far": client.UpstreamFull},
			levels: []string{"queue q_paid_stream 2+2 next", " user u 2+1 next", " user v 0+1 order 1"},
		},
		"one upstream paused, the other full": {
			arrange: func(t *testing.T, h in) {
				require.Equal(t, http.StatusOK, h.harness.call(http.MethodPatch, "/v1/models/duo/upstreams/near", h.operator(), doc{"paused": true, "reason": "moving"}).status)
				h.call(alone)
				h.call(alone)
			},
			why: client.WhyUpstreams, upstream: map[string]string{"near": client.UpstreamPaused, "far": client.UpstreamFull},
			levels: []string{"queue q_paid_stream 1+1 next", " user u 1+1 next"},
		},
		"model paused": {
			arrange: func(t *testing.T, h in) {
				require.Equal(t, http.StatusOK, h.harness.call(http.MethodPatch, "/v1/models/duo", h.operator(), doc{"paused": true, "reason": "moving"}).status)
				h.call(alone)
			},
			why: client.WhyPaused, upstream: map[string]string{"near": client.UpstreamOpen, "far": client.UpstreamOpen},
			levels: []string{"queue q_paid_stream 0+1 next", " user u 0+1 next"},
		},
		"each upstream paused": {
			arrange: func(t *testing.T, h in) {
				for _, name := range []string{"near", "far"} {
					require.Equal(t, http.StatusOK, h.harness.call(http.MethodPatch, "/v1/models/duo/upstreams/"+name, h.operator(), doc{"paused": true, "reason": "moving"}).status)
				}
				h.call(alone)
			},
			why: client.WhyPaused, upstream: map[string]string{"near": client.UpstreamPaused, "far": client.UpstreamPaused},
			levels: []string{"queue q_paid_stream 0+1 next", " user u 0+1 next"},
		},
		"no worker, and nothing known to wait": {
			arrange: func(t *testing.T, h in) {
				require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().Pollers()).Err())
			},
			why: client.WhyUnpolled, upstream: map[string]string{"near": client.UpstreamOpen, "far": client.UpstreamOpen},
		},
		"team at its limit": {
			arrange: func(t *testing.T, h in) {
				h.define("/v1/teams/ads", doc{"slots": 1, "weight": 2})
				h.define("/v1/apps/chat", doc{"teamId": "ads"})
				h.call(call{team: "ads", app: "chat", user: "u"})
				h.call(call{team: "ads", app: "chat", user: "u"})
				h.call(call{team: "ads", user: "v"})
			},
			why: client.WhyLimits, upstream: map[string]string{"near": client.UpstreamFull, "far": client.UpstreamOpen},
			levels: []string{
				"queue q_paid_stream 1+2 next", " team ads 1+2 limit", "  app chat 1+1 above", "   user u 1+1 above", "    endUser  1+1 above", "  user v 0+1 above",
			},
		},
		"of one application": {
			arrange: func(t *testing.T, h in) {
				h.define("/v1/teams/ads", doc{})
				h.define("/v1/apps/chat", doc{"teamId": "ads"})
				h.call(call{team: "ads", app: "chat", user: "u"})
				h.call(call{team: "ads", user: "v"})
			},
			query:    "?appId=chat",
			upstream: map[string]string{"near": client.UpstreamFull, "far": client.UpstreamFull},
			levels:   []string{"queue q_paid_stream 2+0", " team ads 2+0", "  app chat 1+0", "   user u 1+0", "    endUser  1+0"},
		},
		"too long for the free upstream": {
			arrange: func(_ *testing.T, h in) {
				h.call(call{user: "v", needs: lua.Needs{Tokens: 30_000}})
				h.call(call{user: "u", needs: lua.Needs{Tokens: 30_000}})
			},
			why: client.WhyStarting, upstream: map[string]string{"near": client.UpstreamOpen, "far": client.UpstreamFull},
			levels: []string{"queue q_paid_stream 1+1 next", " user u 0+1 upstreams far", " user v 1+0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, catalog := withRouting(t, twoUpstreams)
			number := 0
			tc.arrange(t, in{harness: h, call: func(c call) {
				number++
				_, err := h.scripts.AcquireSlot(t.Context(), lua.SlotCall{
					Model: "duo", Limits: catalog.Limits("duo", 0), Times: modelTimes,
					Lease: lua.Lease{
						Process: "p", Path: lua.Path{Queue: paidStream, Group: lua.Group{Team: c.team, App: c.app}, UserID: c.user}, Needs: c.needs, Rest: fmt.Sprint(number),
					}.ID(),
				})
				require.NoError(t, err)
			}})
			a := h.call(http.MethodGet, "/v1/models/two/levels"+tc.query, h.operator(), nil)
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			d := a.json(t)
			require.Equal(t, "duo", d["model"], "of which two is an alias")
			why, _ := d["why"].(string)
			require.Equal(t, tc.why, why)
			upstreams := map[string]string{}
			for _, u := range d["upstreams"].([]any) {
				upstreams[u.(doc)["name"].(string)] = u.(doc)["state"].(string)
			}
			require.Equal(t, tc.upstream, upstreams)
			require.Equal(t, tc.levels, levelLines(d["levels"], ""))
		})
	}
}

// levelLines returns a level in each line, with its calls that run and wait, and why.
func levelLines(levels any, indent string) (lines []string) {
	list, _ := levels.([]any)
	for _, l := range list {
		l := l.(doc)
		line := fmt.Sprintf("%s%s %s %v+%v", indent, l["kind"], l["id"], l["inUse"], l["waiting"])
		for _, more := range []string{"why", "ahead"} {
			if l[more] != nil {
				line += fmt.Sprint(" ", l[more])
			}
		}
		if upstreams, ok := l["upstreams"].([]any); ok {
			for _, u := range upstreams {
				line += fmt.Sprint(" ", u)
			}
		}
		lines = append(append(lines, line), levelLines(l["levels"], indent+" ")...)
	}
	return lines
}

// G11: what does not exist is refused by name.
func TestModelLevels_UnknownNames_Refused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/ads", doc{})
	h.define("/v1/apps/chat", doc{"teamId": "ads"})
	for path, want := range map[string]int{
		"/v1/models/none/levels":                                   http.StatusNotFound,
		modelPath + "/levels?appId=none":                           http.StatusNotFound,
		modelPath + "/levels?appId=chat&teamId=other":              http.StatusBadRequest,
		modelPath + "/levels?limit=101":                            http.StatusBadRequest,
		modelPath + "/levels?appId=chat&teamId=ads":                http.StatusOK,
		modelPath + "/levels?teamId=not-yet-with-any-task&limit=1": http.StatusOK,
	} {
		a := h.call(http.MethodGet, path, h.operator(), nil)
		require.Equal(t, want, a.status, "%s: %s", path, a.body)
	}
}
