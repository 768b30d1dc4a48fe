package doctor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/doctor"
)

// G8: mistakes in templates, and steps without a model, are found before a process starts.
func TestRun_Templates_MistakesAndMissingModelsAreNamed(t *testing.T) {
	t.Parallel()
	found := run(t, "templates", time.Now)
	require.Len(t, found, 1)
	has(t, found, doctor.OK, "all steps of 8 templates have models", "")

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
	has(t, run(t, "templates", time.Now, "--templates-dir="+filepath.Join(dir, "none")), doctor.Error, "--templates-dir (BERTH_TEMPLATES_DIR)", "create the directory")
}
