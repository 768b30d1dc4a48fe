package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/api"
	"berth/internal/llm"
	"berth/internal/routing"
)

const twoModels = "providers: {p: {baseURL: http://127.0.0.1:1/v1}}\nmodels:\n  deepseek-chat: {provider: p, cap: %d}\n  %s: {provider: p}\n"

// publishedRouting makes the API use what is published in its ledger.
func publishedRouting(t *testing.T) func(*api.Deps) {
	return func(d *api.Deps) {
		var err error
		d.Routing, err = routing.Read("", llm.Settings{}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.NoError(t, d.Routing.Open(t.Context(), d.Ledger))
	}
}

// G15: operators publish a routing file, list the revisions and return to an earlier one; the API uses what was published last.
func TestRouting_PublishedAndActivated_UsedByTheNextRequest(t *testing.T) {
	t.Parallel()
	h := newHarness(t, publishedRouting(t))
	put := func(content string) answer {
		return h.call(http.MethodPut, "/v1/routing", h.operator(), doc{"content": content})
	}
	current := func() doc { return h.call(http.MethodGet, "/v1/routing", h.operator(), nil).json(t) }
	require.Equal(t, []any{1.0, "builtin", true}, []any{current()["revision"], current()["source"], current()["newest"]})

	first := fmt.Sprintf(twoModels, 7, "second")
	a := h.call(http.MethodPut, "/v1/routing", h.operator(), doc{"content": first, "dryRun": true}).json(t)
	require.Equal(t, []any{0.0, false}, []any{a["revision"], a["published"]})
	a = put(first).json(t)
	require.Equal(t, []any{2.0, true}, []any{a["revision"], a["published"]})
	require.Contains(t, a["warnings"], "model deepseek-reasoner is removed: accepted tasks finish with the last revision that had it")
	require.EqualValues(t, 7, h.model("deepseek-chat")["configured"].(doc)["cap"])
	require.Equal(t, first, current()["content"])
	require.Equal(t, false, put("# the same\n" + first).json(t)["published"])

	metered := strings.Replace(fmt.Sprintf(twoModels, 9, "third"), "third: {provider: p}", "third: {provider: p, credits: {input: 1}}", 1)
	a = h.call(http.MethodPut, "/v1/routing", h.operator(), doc{"content": metered, "dryRun": true}).json(t)
	require.Contains(t, fmt.Sprint(a["warnings"]), "models with credits and without maxOutputTokens: third")
	require.Equal(t, true, put(fmt.Sprintf(twoModels, 9, "third")).json(t)["published"])
	a = h.call(http.MethodPost, "/v1/routing/activate", h.operator(), doc{"revision": 2}).json(t)
	require.Equal(t, []any{4.0, true}, []any{a["revision"], a["published"]})
	require.Equal(t, first, current()["content"])
	require.Equal(t, "removed", h.model("third")["missing"], "tasks may have been accepted a moment ago")
	list := h.call(http.MethodGet, "/v1/routing/revisions?limit=2", h.operator(), nil).json(t)
	require.Len(t, list["revisions"], 2)
	require.NotEmpty(t, list["nextCursor"])
	require.Equal(t, "builtin", h.call(http.MethodGet, "/v1/routing/revisions/1", h.operator(), nil).json(t)["source"])

	for content, said := range map[string]string{
		"": "content", "models: [": "routing.yaml", fmt.Sprintf(twoModels, 0, "x"): "models.deepseek-chat.cap (line 3)",
	} {
		refused := put(content)
		require.Equal(t, http.StatusBadRequest, refused.status, content)
		require.Contains(t, refused.problem.Field+": "+refused.problem.Detail, said)
	}
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/routing/revisions/9", h.operator(), nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/routing/activate", h.operator(), doc{"revision": 9}).status)
	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/routing", h.token("u"), nil).status)
}
