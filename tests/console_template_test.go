package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// An operator reads a template, changes it, returns to the version before, and deletes it. Each mistake is shown with its file and line.
func TestConsole_TemplateIsChanged_NewTasksUseTheVersion(t *testing.T) { // G2, G5
	t.Parallel()
	s := newStack(t)
	s.storeTemplate("order")
	s.storeTemplate("weekly_report")
	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	first, err := s.operator().Template(t.Context(), "order")
	require.NoError(t, err)

	b.visit(s, "/templates")
	b.await("all of them", `[...document.querySelectorAll('.rows .main small')].map((e) => e.textContent).includes('order')`)
	b.fitsInBoth("console templates")
	b.shoot("console-templates-zh")
	b.speak(berth.LocaleEN)
	b.do(chromedp.Click(`.rows a[href="#/console/templates/order"]`))
	b.await("the template", `document.querySelector('.pane h1')?.textContent === 'Complaint about an order' && document.querySelectorAll('.pane .rows').length === 3`)
	require.Equal(t, []string{"Read the receiptread", "Collect the factsfacts", "Decidedecide"}, b.texts(".pane section:nth-of-type(2) .main"))
	b.fitsInBoth("console template")
	b.speak(berth.LocaleEN)
	b.shoot("console-template-en")

	version := fmt.Sprintf("/templates/order/%s", first.Version)
	b.visit(s, version)
	b.await("its files", `document.querySelectorAll('[role=tab]').length === 4 && document.querySelector('pre.source')?.textContent.includes('title:')`)
	b.fitsInBoth("console template files")
	b.speak(berth.LocaleEN)
	b.press(".view", "Edit")
	b.rewrite("required: true", "requird: true")
	b.press(".view", "Check")
	b.await("the mistake", `document.querySelector('.mistakes')?.textContent.includes('template.yaml:5') && document.querySelector('.mistakes').textContent.includes('requird')`)
	b.fits("console template mistakes")
	b.shoot("console-template-mistakes-en")
	b.rewrite("requird: true", "required: true")
	b.rewrite("Complaint about an order", "Complaint")
	b.press(".view", "Check")
	b.await("that it is new", `document.querySelector('.notice[role=status]')?.textContent.startsWith('No mistakes.')`)
	b.complaint() // the browser reports the refused check
	state, err := s.operator().Template(t.Context(), "order")
	require.NoError(t, err)
	require.Equal(t, first.Version, state.Version, "a check stores nothing")
	b.press(".view", "Store and activate")
	b.await("the new version", `location.hash.startsWith('#/console/templates/order/') && location.hash !== %s && document.querySelector('.view .badge')?.textContent === 'Active'`, "#/console"+version)

	b.visit(s, "/templates/order")
	b.await("both versions", `document.querySelector('.pane h1')?.textContent === 'Complaint' && document.querySelectorAll('section:last-of-type .rows tbody tr').length === 2`)
	b.shoot("console-template-versions-en")
	b.press(".pane section:last-of-type", "Activate: "+first.Version[:12])
	b.confirm()
	b.await("the version before", `document.querySelector('.pane h1')?.textContent === 'Complaint about an order'`)
	b.press(".view", "Trial run")
	b.await("the form of the template", `location.hash === '#/' && document.querySelector('input[name="template"]:checked')?.value === 'order'`)

	b.visit(s, "/templates/order")
	b.press(".view", "Delete")
	b.confirm()
	b.await("that it is deleted", `document.querySelector('.view .badge')?.textContent === 'Deleted'`)
	b.shoot("console-template-deleted-en")
	_, err = s.user("carol").Submit(t.Context(), client.Submission{ServiceID: "any", Template: "order", Variables: map[string]any{"message": "x"}}, "")
	require.Error(t, err)
	axe, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err)
	for _, view := range []string{"/templates", "/templates/weekly_report", "/templates/order", version} {
		b.visit(s, view)
		for _, width := range []int64{390, 1280} {
			b.accessible(string(axe), "console"+view, width)
		}
	}
	b.quiet()
}

// rewrite replaces a part of the file that is edited.
func (b *tab) rewrite(old, text string) {
	b.Helper()
	b.await("the file", `document.querySelector('textarea.source')?.value.includes(%s)`, old)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector('textarea.source'); e.value = e.value.replace(%q, %q); e.dispatchEvent(new Event('input', { bubbles: true })) }`, old, text)))
}
