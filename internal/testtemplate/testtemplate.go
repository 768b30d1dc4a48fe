// Package testtemplate gives tests the built-in templates, as examples of any.
package testtemplate

import (
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/catalog"
	"berth/internal/ledger"
	"berth/internal/template"
)

var builtin = sync.OnceValue(template.Builtin)

// All returns the built-in templates by name.
func All() []*template.Template { return builtin().Templates }

// Find returns a built-in template.
func Find(tb testing.TB, name berth.Template) *template.Template {
	tb.Helper()
	i := slices.IndexFunc(All(), func(t *template.Template) bool { return t.Name == name })
	require.GreaterOrEqual(tb, i, 0, "no template %s", name)
	return All()[i]
}

// Catalog returns a catalog that has offered the built-in templates to a database.
func Catalog(tb testing.TB, l *ledger.Ledger) *catalog.Catalog {
	tb.Helper()
	c := catalog.New(l, slog.New(slog.DiscardHandler))
	require.NoError(tb, c.Offer(tb.Context(), ledger.TemplateBuiltIn, All(), false))
	require.NoError(tb, c.Refresh(tb.Context()))
	return c
}
