package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// clipped returns the first n characters of a text, which is repeated to that length.
func clipped(text string, n int) string {
	return strings.TrimSpace(string([]rune(strings.Repeat(text, n))[:n]))
}

// longTemplate returns the files of a template whose names, ids and texts are long: such that a browser breaks nowhere, or between the
// characters of the sample.
func longTemplate(t *testing.T, sample string) map[string]string {
	t.Helper()
	label := map[string]string{"en": clipped(sample, 80), "zh": clipped(sample, 80)}
	help := map[string]string{"en": clipped(sample, 200), "zh": clipped(sample, 200)}
	long := func(name string, n int) string { return name + strings.Repeat("n", n-len(name)) }
	variable := func(name string, more map[string]any) map[string]any {
		v := map[string]any{"name": long(name, 64), "label": label, "help": help}
		for key, value := range more {
			v[key] = value
		}
		return v
	}
	schema := map[string]any{
		"type": "object", "required": []string{"name", "done"},
		"properties": map[string]any{
			"name": map[string]any{"type": "string", "title": clipped(sample, 80)}, "done": map[string]any{"type": "boolean", "title": clipped(sample, 80)},
			long("field", 64): map[string]any{"type": "number"},
		},
	}
	models := map[string]any{"paid": "deepseek-chat", "free": "glm-4.5-flash"}
	spec, err := json.Marshal(map[string]any{
		"title": label, "description": help,
		"variables": []any{
			variable("text", map[string]any{"kind": "document", "required": true}), variable("line", map[string]any{"required": true}),
			variable("one", map[string]any{"group": long("group", 64)}), variable("other", map[string]any{"group": long("group", 64), "kind": "document"}),
			variable("photo", map[string]any{"kind": "image"}), variable("tone", map[string]any{"default": clipped(sample, 300)}),
		},
		"steps": []any{
			map[string]any{"id": long("read", 32), "prompt": "read", "label": label, "when": long("photo", 64), "into": long("seen", 64), "models": "glm-4.1v-thinking-flash"},
			map[string]any{"id": long("facts", 32), "prompt": long("facts", 60), "label": label, "into": long("facts", 64), "schema": long("facts", 60) + ".json", "models": models},
			map[string]any{"id": long("answer", 32), "prompt": "answer", "label": label, "models": models},
		},
		"stages": []any{map[string]any{"id": long("begin", 32), "label": label}, map[string]any{"id": long("end", 32), "label": label}},
		"items":  []any{map[string]any{"id": long("item", 32), "label": label, "schema": schema}},
	})
	require.NoError(t, err)
	facts, err := json.Marshal(schema)
	require.NoError(t, err)
	return map[string]string{
		"template.yaml": string(spec), long("facts", 60) + ".json": string(facts),
		"read.prompt":                 fmt.Sprintf("{{role \"user\"}}\nRead it.\n{{media url=%s}}\n", long("photo", 64)),
		long("facts", 60) + ".prompt": fmt.Sprintf("{{role \"system\"}}\nAnswer as JSON: {{schema}} %s\n{{role \"user\"}}\n{{document \"t\" %s}}\n", sample, long("text", 64)),
		"answer.prompt": fmt.Sprintf("{{role \"system\"}}\n<<stage:%s>>\nItems, one on each line, like this:\n<<%s {\"name\":\"a name\",\"done\":false}>>\n<<stage:%s>>\nMore.\n{{role \"user\"}}\n"+
			"{{document \"t\" %s}}\n{{%s}} {{%s}} {{%s}} {{%s}} {{%s}} {{%s}}\n", long("begin", 32), long("item", 32), long("end", 32),
			long("text", 64), long("line", 64), long("one", 64), long("other", 64), long("tone", 64), long("seen", 64), long("facts", 64)),
	}
}

// Every view with names of templates is legible at all widths, whatever characters they have and wherever these may be broken.
func TestPage_LongestNamesOfTemplates_FitTheWindow(t *testing.T) { // G5
	t.Parallel()
	s := newStack(t)
	b := openTab(t, startBrowser(t))
	n := 0
	for kind, sample := range longNames {
		n++
		name := fmt.Sprintf("%s%d", strings.Repeat("t", 63), n)
		if kind == "hyphens" {
			name = fmt.Sprintf("%s%d", strings.Repeat("t7-", 21), n)
		}
		user, service := clipped(sample, 60), strings.Repeat("s", 128)
		applied, err := s.operator().PutTemplate(t.Context(), berth.Template(name), client.TemplateFiles{Files: longTemplate(t, sample)})
		require.NoError(t, err)
		long := func(name string) string { return name + strings.Repeat("n", 64-len(name)) }
		c := s.user(user)
		acc, err := c.Submit(t.Context(), client.Submission{
			TaskID: strings.Repeat("i", 127) + fmt.Sprint(n), ServiceID: service, Template: berth.Template(name), Title: clipped(sample, 80), Locale: berth.LocaleEN,
			Variables: map[string]any{long("text"): complaint, long("line"): clipped(sample, 200), long("one"): clipped(sample, 200)},
		}, "")
		require.NoError(t, err)
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+s.httpAddr+"/#token="+s.token(user, "user", "operator")))
		b.await("the form", `document.querySelector('input[name="template"][value=%s]') !== null`, name)
		b.choice("template", name)
		b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('details.extra').open = true; document.querySelector('form button.primary').click() }`))
		b.await("what is missing", `document.querySelector('.sheet.bad') !== null`)
		b.fits("form with " + kind)
		b.shoot("long-form-" + kind)
		b.open("#/tasks/"+acc.TaskID, `document.querySelector('.task .status.completed') !== null && document.querySelector('.items') !== null`)
		b.do(chromedp.Evaluate[chromedp.Void](`{ for (const d of document.querySelectorAll('details')) d.open = true }`))
		b.await("the texts of the steps", `[...document.querySelectorAll('.chain details')].every((d) => d.querySelector('pre, .written') !== null)`)
		b.fits("task with " + kind)
		b.shoot("long-task-" + kind)
		b.open("#/tasks?template="+name, `document.querySelector('.history .tasks') !== null`)
		b.fits("tasks with " + kind)
		b.open("#/credits", `document.querySelector('.rows') !== null`)
		b.fits("credits with " + kind)
		for view, shown := range map[string]string{
			"/templates": `document.querySelector('.rows') !== null`, "/templates/" + name: `document.querySelectorAll('.pane .rows').length === 3`,
			"/templates/" + name + "/" + applied.Version:           `document.querySelector('.source') !== null`,
			"/templates/" + name + "/" + applied.Version + "/edit": `document.querySelector('textarea.source') !== null`,
			"/templates/" + name + "/" + applied.Version + "/try":  `document.querySelector('.try .sheet') !== null`,
			"/templates?q=" + name:                                 `document.querySelectorAll('.rows tbody tr').length === 1`,
			"/tasks?template=" + name:                              `document.querySelector('.rows') !== null`,
		} {
			b.open("#/console"+view, shown)
			b.fits("console" + strings.NewReplacer(name, "one", applied.Version, "version").Replace(view) + " with " + kind)
		}
		b.open("#/console/templates/"+name+"/"+applied.Version+"/try", `document.querySelector('.try .sheet') !== null`)
		b.enter(long("text"), sample)
		b.enter(long("line"), sample)
		b.enter(long("one"), sample)
		b.do(chromedp.Evaluate[chromedp.Void](`{ for (const d of document.querySelectorAll('details.extra')) d.open = true }`))
		b.press(".try", "Show messages")
		b.await("the messages", `document.querySelectorAll('.messages').length === 2`)
		b.fits("console messages with " + kind)
		b.shoot("long-messages-" + kind)
		b.open("#/console/templates/"+name, `document.querySelectorAll('.pane .rows').length === 3`)
		b.shoot("long-console-" + kind)
		require.NoError(t, s.operator().DeleteTemplate(t.Context(), berth.Template(name))) // a form shows a few
		b.open("#/console/templates?deleted=true&q="+name, `document.querySelectorAll('.rows tbody tr').length === 1`)
		b.fits("console, deleted templates with " + kind)
		b.shoot("long-deleted-" + kind)
		b.press(".rows", "Restore")
		b.await("the question", `document.querySelector('dialog[open] button.quiet') !== null`)
		b.fits("console, restore with " + kind)
		b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.quiet').click() }`))
		b.open("#/console/templates/"+name, `document.querySelector('.view .badge')?.textContent === 'Deleted'`)
		b.fits("console, deleted template with " + kind)
	}
	b.quiet()
}
