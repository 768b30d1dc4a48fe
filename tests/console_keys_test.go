package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// O3: an operator creates an API key, whose secret is shown once and calls models, changes its limits, sets and removes budgets, and revokes it.
// All of it is legible with hundreds of keys and long names, on phones and in both languages.
func TestConsole_KeysAndBudgets_SeenAndChanged(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	operator := s.operator()
	_, err := operator.PutTeam(t.Context(), client.Team{TeamID: "search"})
	require.NoError(t, err)
	_, err = operator.PutApp(t.Context(), client.App{AppID: "chat", TeamID: "search"})
	require.NoError(t, err)
	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)

	var secret string
	t.Run("creates a key", func(t *testing.T) { secret = b.with(t).createKey(s) })
	t.Run("changes and limits it", func(t *testing.T) { b.with(t).changeKey() })
	t.Run("limits a team", func(t *testing.T) { b.with(t).limitTeam(s) })
	t.Run("revokes it", func(t *testing.T) {
		require.Equal(t, http.StatusOK, s.modelsWith(t, secret))
		b.with(t).revokeKey(s)
		s.eventually("the key to be refused", func() bool { return s.modelsWith(t, secret) == http.StatusUnauthorized })
	})
	t.Run("has room for many", func(t *testing.T) { b.with(t).seeManyKeys(s, operator) })
	b.quiet()
}

// modelsWith returns the status of a call with an API key.
func (s *stack) modelsWith(t *testing.T, secret string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.httpAddr+"/openai/v1/models", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+secret)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_ = res.Body.Close() // it was only read
	return res.StatusCode
}

// labelled returns a selector of the field of the open dialog with a label, which it marks.
func (b *tab) labelled(label string) string {
	b.Helper()
	b.await("the field "+label, `(() => {
		const l = [...document.querySelectorAll('dialog[open] label')].find((l) => l.textContent.trim().startsWith(%s));
		const e = l && (l.control ?? l.querySelector('input'));
		if (e) e.dataset.label = %s;
		return Boolean(e);
	})()`, label, label)
	return fmt.Sprintf(`dialog[open] [data-label=%q]`, label)
}

func (b *tab) createKey(s *stack) (secret string) {
	b.visit(s, "/teams/search")
	b.do(chromedp.Click(`.view .actions a[href="#/console/keys?teamId=search"]`))
	b.await("no keys", `document.querySelector('.pane h1')?.textContent === 'API keys' && document.querySelector('.pane .hint')?.textContent === 'None.'`)
	b.press(".pane", "New API key")
	b.await("the team", fmt.Sprintf(`document.querySelector(%q)?.value === 'search'`, b.labelled("Team")))
	b.set(b.labelled("Title"), "Nightly")
	b.set(b.labelled("Models"), "no-such-model")
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
	b.await("why it is refused, at the field", `document.querySelector('dialog[open] textarea[aria-invalid]') !== null && document.querySelector('dialog[open] .error:not(:empty)')?.textContent.includes('no-such-model')`)
	b.set(b.labelled("Models"), "deepseek-chat")
	b.set(b.labelled("Calls per minute"), "60")
	b.set(b.labelled("Expires"), "2099-01-02T15:04")
	b.do(chromedp.Click(b.labelled("flex")))
	b.fits("dialog of a key")
	b.shoot("keys-dialog")
	b.confirm()
	b.await("the secret", `document.querySelector('.made input')?.value.startsWith('sk-berth-')`)
	b.await("the secret to be selected", `(() => { const e = document.querySelector('.made input'); return e.selectionStart === 0 && e.selectionEnd === e.value.length })()`)
	require.Contains(b, ask[string](b, `document.querySelector('.made').textContent`), "it is shown only this time")
	secret = ask[string](b, `document.querySelector('.made input').value`)
	b.await("the key", `document.querySelector('.rows')?.textContent.includes('Nightly') && document.querySelector('.rows').textContent.includes(%s)`, "…"+secret[len(secret)-4:])
	b.fits("secret of a key")
	b.shoot("keys-secret")
	b.do(chromedp.Click(`.rows .main a`))
	b.await("the view of the key", `document.querySelector('.pane h1')?.textContent === 'Nightly' && document.querySelector('.details') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ history.back() }`))
	b.await("the list", `document.querySelector('.rows')?.textContent.includes('Nightly')`)
	require.False(b, ask[bool](b, fmt.Sprintf(`document.querySelector('.made') !== null || document.body.innerHTML.includes(%q)`, secret)), "the secret is shown once")
	b.complaint() // the browser lists the refused request
	return secret
}

func (b *tab) changeKey() {
	b.do(chromedp.Click(`.rows .main a`))
	b.press(".pane", "Edit")
	b.await("its settings", fmt.Sprintf(`document.querySelector(%q)?.value === '60' && document.querySelector(%q).checked`, b.labelled("Calls per minute"), b.labelled("flex")))
	b.set(b.labelled("Calls per minute"), "30")
	b.set(b.labelled("Unfinished calls"), "2")
	b.confirm()
	b.await("the limits", `['30', '2'].every((n) => [...document.querySelectorAll('.details dd')].some((d) => d.textContent === n)) && document.querySelector('.details').textContent.includes('2099')`)
	b.await("no budget", `document.querySelector('.budget .hint')?.textContent.startsWith('Neither the key nor its team')`)
	b.press(".budget", "Set a budget")
	b.set(b.labelled("Credits"), "12.5")
	b.set(b.labelled("Period"), "day")
	b.fits("dialog of a budget")
	b.confirm()
	b.await("the budget", `document.querySelector('.budget .meter')?.textContent.replace(/\s/g, '') === '0/12.5' && document.querySelector('.budget .details').textContent.includes('Day')`)
	b.shoot("keys-one")
}

func (b *tab) limitTeam(s *stack) {
	b.visit(s, "/teams/search")
	b.press(".budget", "Set a budget")
	b.set(b.labelled("Credits"), "1000")
	b.confirm()
	b.await("the budget", `document.querySelector('.budget .meter')?.textContent.includes('1,000') && document.querySelector('.budget .details').textContent.includes('Month')`)
	key, err := s.operator().CreateKey(b.Context(), client.Key{TeamID: "search"})
	require.NoError(b, err)
	b.visit(s, "/keys/"+key.KeyID)
	b.await("the budget of its team", `document.querySelector('.budget .hint')?.textContent.startsWith('The key has no budget of its own') && document.querySelector('.budget .meter').textContent.includes('1,000')`)
	b.fits("key with the budget of its team")
	b.shoot("keys-team-budget")
	require.NoError(b, s.operator().RevokeKey(b.Context(), key.KeyID))
	b.visit(s, "/budgets")
	b.await("both budgets", `document.querySelectorAll('.rows tbody tr').length === 2`)
	b.visit(s, "/budgets?kind=team")
	b.await("that of the team", `document.querySelectorAll('.rows tbody tr').length === 1`)
	b.do(chromedp.Click(`.rows .main a`))
	b.press(".budget", "Remove")
	b.confirm()
	b.await("no budget", `document.querySelector('.budget .hint')?.textContent.startsWith('No budget')`)
}

func (b *tab) revokeKey(s *stack) {
	b.visit(s, "/keys")
	b.do(chromedp.Click(`.rows .main a`))
	b.press(".pane .actions", "Revoke")
	b.await("what follows", `document.querySelector('dialog[open]')?.textContent.includes('cannot be undone')`)
	b.confirm()
	b.await("that it is revoked", `document.querySelector('.view .badge')?.textContent === 'Revoked' && document.querySelector('.view .actions button') === null`)
	b.visit(s, "/keys")
	b.await("no key", `document.querySelector('.pane .hint')?.textContent.startsWith('No API keys yet')`)
	b.shoot("keys-empty")
	b.visit(s, "/keys?revoked=true")
	b.await("the revoked key", `document.querySelector('.rows .badge')?.textContent === 'Revoked'`)
}

// seeManyKeys looks at lists of several pages, and at the longest names.
func (b *tab) seeManyKeys(s *stack, operator *client.Client) {
	long := strings.Repeat("m", berth.MaxKeyTitle)
	_, err := operator.PutTeam(b.Context(), client.Team{TeamID: strings.Repeat("t", 128)})
	require.NoError(b, err)
	var last string
	for i := range 300 {
		spec := client.KeySpec{Title: fmt.Sprintf("Key %d", i), RPM: i, TPM: 1_000_000_000}
		team := "search"
		switch i % 3 {
		case 1:
			spec.Title, team, spec.Models = long, strings.Repeat("t", 128), []string{"deepseek-chat", "deepseek-reasoner"}
		case 2:
			spec.Title = strings.Repeat("夜间任务", 25)
		}
		k, err := operator.CreateKey(b.Context(), client.Key{TeamID: team, KeySpec: spec})
		require.NoError(b, err)
		if last = k.KeyID; i < 60 {
			_, err = operator.PutBudget(b.Context(), berth.BudgetKey, k.KeyID, client.BudgetSpec{Credits: berth.MaxCredits, Period: berth.PeriodTotal})
			require.NoError(b, err)
		}
	}
	b.visit(s, "/keys")
	b.await("the first page", `document.querySelectorAll('.rows tbody tr').length === 50`)
	b.press(".pager", "Next")
	b.await("the second page", `document.querySelector('.pager span')?.textContent === 'Page 2' && !document.querySelector('.rows').textContent.includes('Key 0')`)
	axe, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
	require.NoError(b, err, "axe-core is not installed: run `make console`")
	for lang, width := range map[berth.Locale]int64{berth.LocaleEN: 1280, berth.LocaleZH: 390} {
		b.speak(lang)
		for _, view := range []string{"/keys", "/keys?teamId=" + strings.Repeat("t", 128), "/keys/" + last, "/budgets"} {
			b.visit(s, view)
			b.await("the content of "+view, `document.querySelector('.pane .rows, .pane .details') !== null`)
			b.accessible(string(axe), view, width)
			b.fits("console" + view[:min(len(view), 20)])
			b.shoot("many" + strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(view[:min(len(view), 14)]) + "-" + string(lang))
		}
	}
	b.speak(berth.LocaleEN)
}
