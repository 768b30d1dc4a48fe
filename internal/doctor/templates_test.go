package doctor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/doctor"
	"berth/internal/ledger"
	"berth/internal/template"
	"berth/internal/testledger"
	"berth/internal/testtemplate"
)

// G8: mistakes in templates, and steps without a model, are found before a process starts.
func TestRun_Templates_MistakesAndMissingModelsAreNamed(t *testing.T) {
	t.Parallel()
	found := run(t, "templates", time.Now)
	require.Len(t, found, 1)
	has(t, found, doctor.OK, "all steps of 8 templates have models; those of the database were not read", "")

	dir := t.TempDir()
	write := func(name, text string) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		return at
	}
	write("broken.prompt", "---\ntitel: T\n---\nx")
	write("haiku.prompt", "---\ntitle: T\nmodels: gpt-9\n---\nWrite a haiku.")
	routing := write("routing.yaml", "providers: {p: {baseURL: 'http://127.0.0.1:1'}}\nmodels: {m: {provider: p}}\n"+
		"routes: {default: {paid: m, free: m}, vision: {paid: m, free: m}, poem: {paid: m}}\n")
	found = run(t, "templates", time.Now, "--templates-dir="+dir, "--routing-file="+routing)
	has(t, found, doctor.Warning, "broken.prompt:2: titel: unknown field: write title", "correct the file")
	has(t, found, doctor.Warning, "template haiku: step answer uses m, because the routing file (BERTH_ROUTING_FILE) has no model gpt-9", "")
	has(t, found, doctor.Warning, "routes.poem in the routing file (BERTH_ROUTING_FILE): no template poem", "correct the name")
	has(t, found, doctor.OK, "8 templates of the program use other models than they name, or have none: berth routing print", "")
	has(t, run(t, "templates", time.Now, "--templates-dir="+filepath.Join(dir, "none")), doctor.Error, "--templates-dir (BERTH_TEMPLATES_DIR)", "create the directory")
}

// G8: the templates of the servers count, wherever they come from, also if the doctor has other settings than they.
func TestRun_TemplatesOfTheDatabase_AreChecked(t *testing.T) {
	t.Parallel()
	testledger.Migrated.Each(t, func(t *testing.T, dsn string) {
		l := testledger.Open(t, dsn)
		testtemplate.Catalog(t, l)
		store := func(name berth.Template, model string, source ledger.TemplateSource) {
			t.Helper()
			one, err := template.Load(name, map[string]string{string(name) + ".prompt": "---\ntitle: T\nmodels: " + model + "\n---\nHello."})
			require.NoError(t, err)
			_, err = l.PutTemplate(t.Context(), ledger.TemplateVersion{Template: name, Version: one.Version, Files: one.Files(), Source: source}, true)
			require.NoError(t, err)
		}
		check := func(args ...string) []doctor.Finding {
			return run(t, "templates", time.Now, append(args, "--database="+dsn)...)
		}
		store("a", "deepseek-chat", ledger.TemplateAPI)
		store("translate", "deepseek-chat", ledger.TemplateDirectory)
		require.NoError(t, l.DeleteTemplate(t.Context(), "ticket_summary", "olga"))
		has(t, check(), doctor.OK, "all steps of 8 templates have models (6 of the program, 1 of a directory, 1 of operators)", "")

		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "next.prompt"), []byte("---\ntitle: T\nmodels: deepseek-chat\n---\nHello."), 0o600))
		has(t, check("--templates-dir="+dir), doctor.OK, "all steps of 9 templates have models (6 of the program, 2 of a directory, 1 of operators)", "")

		store("b", "gpt-9", ledger.TemplateAPI)
		_, err := l.PutTemplate(t.Context(), ledger.TemplateVersion{Template: "c", Version: "newer", Files: map[string]string{"template.yaml": "newField: 1"}, Source: ledger.TemplateAPI}, true)
		require.NoError(t, err)
		found := check()
		has(t, found, doctor.Warning, "template b: step answer", "")
		has(t, found, doctor.Warning, "template c: this release cannot read its active version newer", "upgrade berth")
	})
}
