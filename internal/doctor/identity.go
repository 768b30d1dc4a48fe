package doctor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"berth/internal/health"
	"berth/internal/identity"
)

// identity checks that the tokens of the identity provider can be verified, if there is one.
func (d *doctor) identity(ctx context.Context) {
	const subject = "identity"
	options, ok := d.cfg.Identity.Provider(slog.New(slog.DiscardHandler))
	if !ok {
		return
	}
	provider, err := identity.NewProvider(options)
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	sent := d.now().Truncate(time.Second) // as the provider states its time
	found, err := provider.Discover(ctx)
	if wrong, ok := errors.AsType[*health.Problem](err); ok {
		advice := "check " + wrong.Setting
		if wrong.Code == "issuer" && !strings.Contains(found.Issuer, "{") {
			advice = "set BERTH_OIDC_ISSUER=" + found.Issuer
		}
		d.add(Error, subject, advice, "%s", wrong)
		return
	}
	if found.Issuer != "" && found.Issuer != options.Issuer {
		d.add(Warning, subject, "set BERTH_OIDC_ISSUER="+found.Issuer,
			"the provider's issuer is %s, which differs from BERTH_OIDC_ISSUER by a slash; berth accepts both", found.Issuer)
	}
	d.add(OK, subject, "", "%s: keys that verify tokens: %s", cmp.Or(found.Issuer, options.JWKSURL), strings.Join(found.Keys, ", "))
	if len(found.Faulty) > 0 {
		d.add(Warning, subject, "replace them at the identity provider", "tokens that these keys sign are refused: %s", strings.Join(found.Faulty, ", "))
	}
	if !found.Clock.IsZero() {
		d.clock(subject, found.Clock, sent, d.now())
	}
}
