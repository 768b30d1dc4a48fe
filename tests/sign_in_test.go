package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth/internal/testoidc"
)

// signInWithProvider presses the button of the page, which the provider answers with the user that is next.
func (b *tab) signInWithProvider() {
	b.Helper()
	b.press("main", "Sign in with")
}

func (b *tab) signedInAs(user string) {
	b.Helper()
	b.await("the sign-in of "+user, `document.querySelector('.who')?.textContent.includes(%s) && location.search === ''`, user)
}

// An operator signs in with the provider, from and to any view, without a token in the address or in what outlasts the tab. The tokens
// are renewed before they expire, and each failure says what to do.
func TestPage_OIDCSignIn_OperatorSeesConsole(t *testing.T) { // X5, X8
	t.Parallel()
	provider := testoidc.Start(t)
	s := newStack(t, with("BERTH_OIDC_ISSUER="+provider.Issuer(), "BERTH_OIDC_CLIENT_ID="+testoidc.Audience, "BERTH_OIDC_TOKEN=id",
		"BERTH_AUTH_AUDIENCE=berth,"+testoidc.Audience, "BERTH_OIDC_SCOPE_CLAIM=roles", "BERTH_OIDC_SCOPE_MAP=berth-operator=user,operator;*=user"))
	operator := jwt.MapClaims{"roles": []string{"berth-operator"}}
	home := "http://" + s.httpAddr + "/"
	b := openTab(t, startBrowser(t))

	t.Run("to the view from which it started", func(t *testing.T) {
		b := b.with(t)
		b.do(chromedp.Navigate(home + "#/console/models"))
		provider.Queue("olga", operator)
		b.shoot("sign-in-en")
		b.signInWithProvider()
		b.signedInAs("olga")
		b.await("the view of the models", `location.hash === '#/console/models' && document.querySelector('[aria-labelledby="m-deepseek-chat"]') !== null`)
		require.Empty(t, ask[map[string]string](b, `({ ...localStorage })`), "nothing outlasts the tab")
		b.do(chromedp.Reload())
		b.signedInAs("olga")
		b.quiet()
	})

	t.Run("tokens are renewed", func(t *testing.T) {
		b := b.with(t)
		provider.ExpireAfter(6 * time.Second)
		b.press("header", "Sign out")
		provider.Queue("olga", operator)
		b.signInWithProvider()
		b.signedInAs("olga")
		first := ask[string](b, `sessionStorage.getItem('berth.tokens')`)
		b.await("new tokens", `sessionStorage.getItem('berth.tokens') !== %s`, first)
		expires := ask[int64](b, `JSON.parse(atob(JSON.parse(`+fmt.Sprintf("%q", first)+`).token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'))).exp * 1000`)
		b.await("the first token to expire", `Date.now() > %s + 7000`, expires) // and the leeway
		b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/console/accounts' }`))
		b.await("the accounts", `document.querySelector('.pane h1') !== null && location.hash === '#/console/accounts'`)
		b.signedInAs("olga")
		b.quiet()
	})

	t.Run("expired without renewal", func(t *testing.T) {
		b := b.with(t)
		provider.Stop()
		b.await("the end of the sign-in", `document.querySelector('#token-trouble')?.textContent.includes('expired')`)
		require.Empty(t, ask[map[string]string](b, `({ ...sessionStorage })`))
		b.signInWithProvider()
		b.await("the provider's outage", `document.querySelector('#token-trouble')?.textContent.includes('cannot be reached')`)
		b.complaint() // of the browser, about failed requests
	})

	t.Run("answer of another sign-in", func(t *testing.T) {
		b := b.with(t)
		b.do(chromedp.Navigate(home + "?code=stolen&state=of-another-tab"))
		b.await("the refusal", `document.querySelector('#token-trouble')?.textContent.includes('belongs to no sign-in') && location.search === ''`)
		b.do(chromedp.Evaluate[chromedp.Void](`{ sessionStorage.setItem('berth.oidc', JSON.stringify({ state: 's', nonce: 'n', verifier: 'v', hash: '' })) }`))
		b.do(chromedp.Navigate(home + "?error=access_denied&error_description=not+assigned+to+berth&state=s"))
		b.await("the reason of the provider", `document.querySelector('#token-trouble')?.textContent.includes('not assigned to berth')`)
		b.quiet()
	})

	t.Run("by token as before", func(t *testing.T) {
		b := b.with(t)
		script, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
		require.NoError(t, err, "axe-core is not installed: run `make console`")
		b.accessible(string(script), "sign-in", 390)
		b.do(chromedp.SendKeys(`#token`, s.token("carol")), chromedp.Click(`form button.primary`))
		b.signedInAs("carol")
		b.quiet()
	})
}
