package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/template"
	"berth/internal/testledger"
)

// G8: one line states what a routing file lacks, however many templates there are, and only once.
func TestWarn_RoutingOfOwnModels_OneLineForEachKind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	routing := filepath.Join(dir, "models.yaml")
	require.NoError(t, os.WriteFile(routing, []byte("providers: {p: {baseURL: 'http://127.0.0.1:1'}}\nmodels: {m: {provider: p}}\n"+
		"routes: {default: {paid: m, free: m}, vision: {paid: m, free: m}}\n"), 0o600))
	models, err := llm.LoadCatalog(routing)
	require.NoError(t, err)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	all, err := openTemplates(t.Context(), l, "", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	warn := func() string {
		t.Helper()
		log.Reset()
		require.NoError(t, all.Refresh(t.Context()))
		all.warn(t.Context(), models, logger)
		return log.String()
	}
	first := warn()
	require.Equal(t, 1, strings.Count(first, "\n"), first)
	require.Contains(t, first, "level=INFO msg=\"routing file without the models of templates of the program\" steps=")
	require.Contains(t, first, "berth routing print --server")
	require.Empty(t, warn(), "once")

	for i := range 3 {
		name := fmt.Sprintf("own%d", i)
		one, err := template.Load(berth.Template(name), map[string]string{name + ".prompt": "---\ntitle: T\nmodels: gpt-9\n---\nHello."})
		require.NoError(t, err)
		_, err = l.PutTemplate(t.Context(), ledger.TemplateVersion{Template: one.Name, Version: one.Version, Files: one.Files(), Source: ledger.TemplateAPI}, true)
		require.NoError(t, err)
	}
	second := warn()
	require.Equal(t, 1, strings.Count(second, "\n"), second)
	require.Contains(t, second, "level=WARN msg=\"routing incomplete\" problems=3")
	require.Contains(t, second, "template own0: step answer uses m")
	require.Empty(t, warn(), "once")

	fewer := models
	require.NoError(t, os.WriteFile(routing, []byte("providers: {p: {baseURL: 'http://127.0.0.1:1'}}\nmodels: {m: {provider: p}, gpt-9: {provider: p}}\n"+
		"routes: {default: {paid: m, free: m}, vision: {paid: m, free: m}}\n"), 0o600))
	models, err = llm.LoadCatalog(routing)
	require.NoError(t, err)
	require.Empty(t, warn(), "the model was added")
	models = fewer
	removed := warn()
	for i := range 3 {
		require.Contains(t, removed, fmt.Sprintf("template own%d: step answer uses m", i), "each template by name, and the model that was removed")
	}
	require.Contains(t, removed, "gpt-9")
}
