package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// longNames are the beginnings that all names and ids get: such that a browser breaks nowhere, anywhere, or between some characters.
var longNames = map[string]string{
	"Latin letters": strings.Repeat("u", 240), "Chinese": strings.Repeat("用", 80), "emoji": strings.Repeat("🦀", 60),
	"hyphens": strings.Repeat("7f3a9c21-", 25), "words": strings.Repeat("name of several words ", 11),
}

// named are the fields of the API that hold a name, an id, or a text that a user chose.
var named = []string{
	"userId", "taskId", "sessionId", "turnId", "executionId", "conferenceId", "passId", "tenantId", "nodeId", "affinityNodeId", "poolId", "pools", "owner", "identity", "removedBy",
	"teamId", "appId", "keyId", "users", "executor", "title", "zone", "hostname", "target", "subject", "model", "provider", "queue", "message", "error", "text", "serviceId", "services",
}

// Users, tasks, sessions, turns, executions, nodes and pools may have names of up to 255 bytes: every list and every view of one of them
// stays legible at all widths.
func TestConsole_LongestNames_FitTheWindow(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	b := openTab(t, startBrowser(t))
	c := s.user("carol")
	acc, err := c.Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, Variables: map[string]any{"jobText": string(example(t, "posting-en.txt"))},
	}, "")
	require.NoError(t, err)
	s.translator("tokyo-1")
	d := s.session("speaker", "console-session")
	turn := d.submit("", 0, berth.FinalizeNone).TurnID
	d.submit(turn, 1, berth.FinalizeManual)
	d.await(turn, berth.EventDone)
	s.engine("engine-1", 2, false)
	execution, err := s.user("alice", "user", "node").Execute(t.Context(), client.ExecutionSpec{Executor: "echo", Input: []byte(`{"page": 1}`)})
	require.NoError(t, err)
	s.media("unit-1", 5)
	const number = "8681230002"
	s.conferences().open(number, func(c *client.ConferenceSpec) { c.Title = "Weekly planning" })

	_, err = s.operator().PutTeam(t.Context(), client.Team{TeamID: "ads", LevelSpec: client.LevelSpec{Title: "Advertising"}, Users: []string{"carol"}, Services: []string{"career"}})
	require.NoError(t, err)
	_, err = s.operator().PutApp(t.Context(), client.App{AppID: "chat", TeamID: "ads"})
	require.NoError(t, err)
	key, err := s.operator().CreateKey(t.Context(), client.Key{AppID: "chat", KeySpec: client.KeySpec{Title: "Nightly", Models: []string{"deepseek-chat"}}})
	require.NoError(t, err)

	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	b.visit(s, "/tasks")
	b.await("the task", `[...document.querySelectorAll('.rows tbody tr')].some((e) => e.textContent.includes(%s) && e.querySelector('.dot.done'))`, acc.TaskID)
	b.visit(s, "/turns")
	b.await("the turn", `document.querySelector('.rows')?.textContent.includes(%s)`, turn)
	b.visit(s, "/executions")
	b.await("the execution", `document.querySelector('.rows')?.textContent.includes(%s)`, execution.ExecutionID)
	b.visit(s, "/conferences")
	b.await("the conference", `document.querySelector('.rows')?.textContent.includes(%s)`, number)

	script, err := os.ReadFile("testdata/names.js")
	require.NoError(t, err)
	fields, err := json.Marshal(named)
	require.NoError(t, err)
	for kind, prefix := range longNames {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("(%s\n)(%q, %s)", script, prefix, fields)))
		long := func(name string) string { return ask[string](b, fmt.Sprintf("encodeURIComponent(%q)", prefix+name)) }
		for name, view := range map[string]string{
			"overview": "", "fleet": "/fleet", "node": "/fleet/" + long("tokyo-1"), "pools": "/pools", "pool": "/pools/" + long("translate:en-es"), "models": "/models",
			"tasks": "/tasks", "task": "/tasks/" + long("carol") + "/" + long(acc.TaskID), "turns": "/turns", "turn": "/turns/" + long(turn), "sessions": "/sessions",
			"executions": "/executions", "execution": "/executions/" + long("alice") + "/" + long(execution.ExecutionID),
			"conferences": "/conferences", "conference": "/conferences/" + number, "accounts": "/accounts", "account": "/accounts/" + long("carol"),
			"usage": "/usage", "audit": "/audit", "sums": "/sums?by=user,model,upstream,day",
			"teams": "/teams", "team": "/teams/" + long("ads"), "apps": "/apps", "app": "/apps/" + long("chat"), "keys": "/keys", "key": "/keys/" + long(key.KeyID),
			"reconciliation": "/reconciliation",
		} {
			b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/console/none' }`))
			b.await("no view", `document.querySelector('.pane > header > h1') !== null && document.querySelector('.pane .rows, .pane .details') === null`)
			b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ location.hash = %q }", "#/console"+view)))
			b.await("the view "+name, `document.querySelector('.pane .rows, .pane .details, .pane .tiles, .pane .facts') !== null && document.querySelector('.pane [role=status].hint') === null`)
			if view != "" && name != "reconciliation" {
				b.await("the long names in "+name, `document.querySelector('.pane').textContent.includes(%s)`, string([]rune(prefix)[:40]))
			}
			b.fits("console " + name + " with " + kind)
		}
	}
}
