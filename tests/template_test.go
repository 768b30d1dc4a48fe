package tests

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
)

// twoSteps are the files of a template whose steps both say its version.
func twoSteps(version string) map[string]string {
	return map[string]string{
		"template.yaml": `title: Report
variables: [{name: report, required: true}]
steps:
  - {id: facts, into: facts, models: deepseek-chat, schema: {component: string}}
  - {id: advice, models: deepseek-reasoner}
`,
		"facts.prompt":  `{{role "system"}}Prompt ` + version + `, {{schema}}{{role "user"}}{{document "report" report}}`,
		"advice.prompt": `{{role "system"}}Prompt ` + version + `{{role "user"}}{{document "report" report}}{{document "facts" facts}}`,
	}
}

func put(t *testing.T, c *client.Client, name berth.Template, files map[string]string) client.AppliedTemplate {
	t.Helper()
	applied, err := c.PutTemplate(t.Context(), name, client.TemplateFiles{Files: files})
	require.NoError(t, err)
	return applied
}

// asked returns a model whose requests are kept, with the marks of the prompts in them.
func asked(o sim.Options) (http.Handler, func() string) {
	inner := modelHandler(o)
	prompts := make(chan string, 1000)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			for _, version := range []string{"one", "two"} {
				if strings.Contains(string(body), "Prompt "+version) {
					prompts <- version
				}
			}
			inner.ServeHTTP(w, r)
		}), func() string {
			var all []string
			for {
				select {
				case p := <-prompts:
					all = append(all, p)
				default:
					return strings.Join(all, " ")
				}
			}
		}
}

// G3: an accepted task uses its version to the end: while another one is active, on a worker that started later, after kill -9 between its
// steps, with encrypted payloads, and when the directory is gone.
func TestTemplate_ChangedDuringTask_TaskKeepsItsVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "templates")
	write := func(version string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "report"), 0o700))
		for name, text := range twoSteps(version) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "report", name), []byte(text), 0o600))
		}
	}
	write("one")
	handler, prompts := asked(sim.Options{TokensPerSecond: 400})
	s := newStack(t, with("BERTH_TEMPLATES_DIR="+dir), withKeys(t, "k1:"+payloadKey("k")), func(s *stack) { s.model.Config.Handler = handler })
	c, op := s.user("alice"), s.operator()
	first, err := op.Template(t.Context(), "report")
	require.NoError(t, err)
	require.Equal(t, "directory", first.Source)
	pause := func(model string, paused bool) {
		_, err := op.PatchModel(t.Context(), model, map[string]any{"paused": paused})
		require.NoError(t, err)
	}
	submit := func(text string) string {
		var id string
		s.eventually("a worker of the template", func() bool {
			acc, err := c.Submit(t.Context(), client.Submission{ServiceID: "s", Template: "report", Variables: map[string]any{"report": text}}, "")
			id = acc.TaskID
			return err == nil
		})
		return id
	}
	pause("deepseek-reasoner", true)
	old := submit("The pump stands still.")
	s.eventually("the first step to end", func() bool {
		task, err := c.Get(t.Context(), old)
		return err == nil && task.StepIndex == 1
	})
	s.worker.kill()
	write("two")
	s.eventually("the other version to be active", func() bool {
		now, err := op.Template(t.Context(), "report")
		return err == nil && now.Version != first.Version
	})
	require.NoError(t, os.RemoveAll(dir)) // a directory that is gone deletes no template
	s.settings = append(slices.Clone(s.settings), "BERTH_TEMPLATES_DIR="+t.TempDir())
	s.worker = s.startWorker()
	require.Equal(t, "one", prompts())
	pause("deepseek-reasoner", false)
	require.Equal(t, berth.EventDone, watch(t, c, old, nil).last.Type)
	require.Equal(t, "one", prompts(), "the second step of the version of the task")
	task, err := c.Get(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, first.Version, task.TemplateVersion)

	require.Equal(t, berth.EventDone, watch(t, c, submit("The pump leaks."), nil).last.Type)
	require.Equal(t, "two two", prompts())
}

// G2: a version, and the return to the one before, is used by every process within a second; a model that no template used before is called
// without a restart of workers.
func TestTemplate_AppliedAndRolledBack_EveryProcessFollows(t *testing.T) {
	t.Parallel()
	handler, _ := asked(sim.Options{})
	s := newStack(t, func(s *stack) { s.model.Config.Handler = handler })
	other := freeAddr(t)
	settings := s.settings
	s.settings = append(s.settings[:len(s.settings):len(s.settings)], "BERTH_HTTP_ADDR="+other)
	second := s.start("berth", []string{"api"}, s.settings)
	s.settings = settings
	t.Cleanup(second.kill)
	there := client.New("http://"+other, s.token("olga", "operator", "user"))
	s.eventually("the second API", func() bool { _, err := there.Templates(t.Context(), client.TemplateQuery{}); return err == nil })
	op := s.operator()
	follows := func(version string) {
		s.eventually("version "+version[:12]+" in the other process", func() bool {
			all, err := there.Templates(t.Context(), client.TemplateQuery{})
			require.NoError(t, err)
			for _, one := range all {
				if one.Name == "report" {
					return one.Version == version
				}
			}
			return false
		})
	}
	one := put(t, op, "report", twoSteps("one"))
	follows(one.Version)
	two := put(t, op, "report", twoSteps("two"))
	follows(two.Version)
	_, err := op.ActivateTemplate(t.Context(), "report", one.Version)
	require.NoError(t, err)
	follows(one.Version)

	c := s.user("alice")
	var acc client.Acceptance
	s.eventually("workers to poll the queue of the new model", func() bool {
		files := map[string]string{"t.prompt": "---\ntitle: T\nmode: batch\nmodels: deepseek-reasoner\nvariables: [{name: x}]\noutput: {schema: {y: string}}\n---\n{{x}}"}
		put(t, op, "flash", files)
		acc, err = c.Submit(t.Context(), client.Submission{ServiceID: "s", Template: "flash", Variables: map[string]any{"x": "y"}}, "")
		return err == nil
	})
	require.Equal(t, berth.EventDone, watch(t, c, acc.TaskID, nil).last.Type)
}

// G1, G2, G8: files are validated, applied, changed and rolled back with the command.
func TestTemplateCommand_FilesOfAnAuthor_AppliedAndRolledBack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	run := func(succeeds bool, args ...string) string {
		return s.runCLI(succeeds, append(args, "--token="+s.token("olga", "operator", "user"))...)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "cheer.prompt")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("---\ntitel: Cheer\nmodels: deepseek-chat\nvariables: [{name: mail, knd: text}]\n---\n{{nope}} {{mail}}")
	out := run(false, "template", "apply", file)
	for _, want := range []string{"cheer.prompt:2: titel: unknown field: write title", "cheer.prompt:4: variables[0].knd", `cheer.prompt:6: there is no variable "nope"`} {
		require.Contains(t, out, want)
	}
	write("---\ntitle: Cheer\nmodels: deepseek-chat\nvariables: [{name: mail, required: true}]\n---\nCheer {{mail}}")
	require.Regexp(t, `cheer +[0-9a-f]{12} +new, not stored`, run(true, "template", "apply", file, "--dry-run"))
	require.Regexp(t, `cheer +[0-9a-f]{12} +new, active`, run(true, "template", "apply", file))
	require.Regexp(t, `cheer +[0-9a-f]{12} +known, active`, run(true, "template", "apply", file))
	write("---\ntitle: Cheer\nmodels: deepseek-chat\nvariables: [{name: mail, required: true}]\n---\nCheer more {{mail}}")
	run(true, "template", "apply", dir)
	versions := strings.Split(strings.TrimSpace(run(true, "template", "versions", "cheer")), "\n")
	require.Len(t, versions, 3)
	require.Contains(t, versions[1], "active")
	before := strings.Fields(versions[2])[0]
	require.Contains(t, run(true, "template", "activate", "cheer", before[:8]), fmt.Sprintf("version %s is active", before))
	require.Contains(t, run(true, "template", "list", "--server"), before)
	require.Contains(t, run(true, "template", "show", "cheer", "--server"), "deepseek-chat")
	run(true, "template", "export", "cheer", filepath.Join(dir, "out"), "--server")
	text, err := os.ReadFile(filepath.Join(dir, "out", "cheer.prompt")) //nolint:gosec // the test's own file
	require.NoError(t, err)
	require.Contains(t, string(text), "\nCheer {{mail}}")
	require.Contains(t, run(true, "task", "submit", "--template", "cheer", "--var", "mail=Hello", "--watch"), "done:")
	run(true, "template", "delete", "cheer")
	require.Contains(t, run(false, "task", "submit", "--template", "cheer"), "was deleted")
	require.Contains(t, run(true, "routing", "print", "--server"), "ticket_summary")
}
