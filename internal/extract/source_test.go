package extract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kept are texts with tags that are not pages: everything in them is text.
var kept = map[string][]string{
	"": { // a name without an extension, or none
		"<div class=\"x\">Go engineer</div>", "<p>Go engineer</p> wanted\n", "<p align=\"center\"><img src=x></p>\n\n# Title\n\n- Go\n",
		"<?php echo 1; ?>\n<html><body><p>Hi <?= $name ?></p></body></html>", "<!DOCTYPE html>\n<html><body><% if (x) { %>Hi<% } %></body></html>",
		"<html><body><p class=\"<%= x %>\">Hi</p></body></html>", "<%@ page language=\"java\" %>\n<html><body>Hi</body></html>",
		"<template>\n  <h1>{{ title }}</h1>\n</template>\n\n<script setup>\nconst title = 'Go'\n</script>\n", "<script>\n  let a = 1;\n</script>\n\n<h1>{a}</h1>\n",
		"<App>{items.map(i => <li>{i}</li>)}</App>", "<Button onClick={() => go(1 < 2)}>Go</Button>", "<config mode=\"fast\">Go</config>",
		"<xsl:stylesheet xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\" version=\"1.0\"><xsl:template match=\"/\">Go</xsl:template></xsl:stylesheet>",
		"<?xml version=\"1.0\"?>\n<xsl:stylesheet xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\" version=\"1.0\"><xsl:value-of select=\"x\"/></xsl:stylesheet>",
		"<T> is a type parameter", "<a>one</a>\n<a>two</a>\n", "<job><!-- note -->Go</job>", "<title>Go</title>", "<b>Note:</b> a < b", "<!-- note --> text",
		"<details>\n<summary>More</summary>\n\n```js\nif (a < b) {}\n```\n</details>\n", "<script>alert(1)</script>", "<table><tr><td>1</table>",
	},
	"README.md":       {"<html><body>Go</body></html>", "<h1 align=center>berth</h1>\n\n```html\n<div hidden>x</div>\n```\n"},
	"App.vue":         {"<template><div>Go</div></template>", "<script>let a</script>"},
	"App.svelte":      {"<script>let a</script>", "<svelte:head><title>Go</title></svelte:head>"},
	"App.jsx":         {"<html><body>Go</body></html>", "<svg><text>Go</text></svg>"},
	"page.TSX":        {"<div>Go</div>"},
	"x.html.erb":      {"<!DOCTYPE html><html><head><title>a</title></head><body>b</body></html>"},
	"x.tmpl":          {"<!DOCTYPE html><html><head><title>{{.A}}</title></head><body>b</body></html>"},
	"x.xsl":           {"<?xml version=\"1.0\"?><a b=\"c\">d</a>"},
	"index.php":       {"<html><body><?php echo 1 ?></body></html>", "<div><?= $x ?></div>"},
	"index.html":      {"<html><body><?php echo 1 ?></body></html>", "<ul><% for x in y %><li></ul>"},
	"index.shtml":     {"no tags at all\n\nhere", "a < b, c > d"},
	"notes.txt":       {"<div>Go engineer</div>"},
	"mail-schema.sql": {"-- x\nselect 1"},
}

func TestText_SourceWithTags_NothingIsLost(t *testing.T) { // FU1
	t.Parallel()
	n := 0
	for name, texts := range kept {
		for _, text := range texts {
			out, err := readAs(name, []byte(text), 1000)
			require.NoError(t, err, "%s %q", name, text)
			require.Equal(t, text, out, name)
			n++
		}
	}
	t.Logf("%d texts", n)
}

func TestText_PageWithName_ShownTextIsRead(t *testing.T) { // FU1
	t.Parallel()
	for name, pages := range map[string][]string{
		"":           {"<!DOCTYPE html><title>x</title><p>Go", "<html><body>Go", "<HEAD><title>x</title></HEAD>Go", "<body>Go", "<meta charset=utf-8><title>x</title><p>Go", "<!-- saved --><html>Go", "<job>\n<title>Go</title></job>"},
		"index.php":  {"<!DOCTYPE html><html><body>Go</body></html>", "<html><body>Go<script>if (a <% b) {}</script></body></html>"},
		"job.doc":    {"<html xmlns:o=\"urn:schemas-microsoft-com:office:office\"><?xml:namespace prefix = o /><body>Go</body></html>"},
		"job.txt":    {"<!doctype HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\"><p>Go"},
		"a/job.HTML": {"<div class=x>Go</div>", "<title>x</title>Go", "Go<script>alert(1)</script>", "<span>Go</span><template>x</template>", "<table><tr><td>Go"},
		"job.xhtml":  {"<?xml version=\"1.0\"?><html xmlns=\"http://www.w3.org/1999/xhtml\"><body>Go</body></html>"},
		"job.eml":    {"<html><body>Go</body></html>"},
		"job.xml":    {"<job title=\"x\">Go</job>", "<p>Go</p>"},
	} {
		for _, page := range pages {
			out, err := readAs(name, []byte(page), 1000)
			require.NoError(t, err, "%s %q", name, page)
			require.Equal(t, "Go", strings.TrimSpace(out), "%s %q", name, page)
		}
	}
}
