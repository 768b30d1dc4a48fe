package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/client"
	"berth/internal/llm"
	"berth/internal/template"
)

func TestRoutingPrint_FileOfTheCommand_IsNamed(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "models.yaml", "providers: {p: {baseURL: 'http://127.0.0.1:1/v1'}}\nmodels: {only: {provider: p, credits: {input: 1}}}\n"+
		"routes: {default: {paid: only, free: only}, vision: {paid: only, free: only}}\n")
	for path, want := range map[string]string{"": "· routing file: built-in;", file: "· routing file: " + file + "\n"} {
		var c routingPrint
		c.Model.RoutingFile = path
		var out, info bytes.Buffer
		require.NoError(t, c.run(t.Context(), &out, &info))
		require.True(t, strings.HasPrefix(info.String(), want), info.String())
		require.True(t, strings.HasPrefix(out.String(), "TEMPLATE "), out.String())
		require.Equal(t, path != "", strings.Contains(out.String(), "warning: models with credits and without maxOutputTokens: only: "), out.String())
	}
}

// G12: models with several upstreams, or aliases, are listed with them.
func TestRoutingPrint_Upstreams_Listed(t *testing.T) {
	t.Parallel()
	var c routingPrint
	c.Model.RoutingFile = write(t, t.TempDir(), "models.yaml", "providers: {p: {baseURL: 'http://127.0.0.1:1/v1'}, q: {baseURL: 'http://127.0.0.1:1/v1'}}\nmodels:\n"+
		"  one: {provider: p}\n  two: {aliases: [gpt-5], upstreams: [{provider: p, rank: 2, id: x}, {provider: q, cap: auto, min: 2, responses: true}]}\n"+
		"routes: {default: {paid: gpt-5, free: one}, vision: {paid: one, free: one}}\n")
	var out bytes.Buffer
	require.NoError(t, c.run(t.Context(), &out, io.Discard))
	_, upstreams, ok := strings.Cut(out.String(), "\n\n")
	require.True(t, ok, out.String())
	var rows []string
	for line := range strings.Lines(upstreams) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	require.Equal(t, []string{"MODEL UPSTREAM PROVIDER ID SPEAKS RANK CAP ALIASES", "one p p one chats 1 5", "two q q two chats, responses 1 auto, 2 to 64 gpt-5", "two p p x chats 2 5 gpt-5"}, rows[:4])
	require.NotContains(t, out.String(), "gpt-5 default", "routes have the names of models")
}

// The commands of the README work with its routing file as they do with the built-in one.
func TestReadme_RoutingFile_HasTheModelsOfItsCommands(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../../README.md", "../../README.zh-CN.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		block := regexp.MustCompile("(?s)`models.yaml`:\n\n```yaml\n(.*?)```").FindSubmatch(text)
		capped := regexp.MustCompile(`berth model cap (\S+) `).FindAllSubmatch(text, -1)
		require.NotEmpty(t, capped, name)
		require.Len(t, block, 2, name)
		file := filepath.Join(t.TempDir(), "models.yaml")
		require.NoError(t, os.WriteFile(file, block[1], 0o600))
		for _, path := range []string{"", file} {
			models, err := llm.LoadCatalog(path)
			require.NoError(t, err, name)
			used := models.UsedModels(template.Builtin().Templates)
			for _, c := range capped {
				require.Contains(t, used, string(c[1]), "%s: %q", name, path)
			}
			for _, one := range template.Builtin().Templates {
				for _, r := range models.Routing(one) {
					require.NotEmpty(t, r.Model, "%s: %q: %s %s %s", name, path, one.Name, r.Step, r.Tier)
				}
			}
		}
	}
}

func TestRoutingCommands_Run_RequestsAndText(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "models.yaml", "providers: {p: {baseURL: 'http://127.0.0.1:1/v1'}}\nmodels: {only: {provider: p}}\n")
	var requests []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.Path+" "+strings.TrimSpace(string(body)))
		switch {
		case r.Method == http.MethodPut && strings.Contains(string(body), "dryRun"):
			_, _ = io.WriteString(w, `{"revision":0,"published":false,"warnings":["model a is removed"]}`)
		case r.Method != http.MethodGet:
			_, _ = io.WriteString(w, `{"revision":3,"published":true,"warnings":[]}`)
		case strings.HasSuffix(r.URL.Path, "/revisions"):
			_, _ = io.WriteString(w, `{"revisions":[{"revision":3,"newest":true,"source":"api","createdAt":"2026-01-02T03:04:05Z","createdBy":"olga"},
				{"revision":2,"source":"file","createdAt":"2026-01-02T03:04:05Z","origin":"h:/r.yaml"}]}`)
		default:
			_, _ = io.WriteString(w, `{"revision":3,"source":"api","createdAt":"2026-01-02T03:04:05Z","createdBy":"olga","content":"providers: {}\n"}`)
		}
	}))
	defer srv.Close()
	api := client.New(srv.URL, "t")
	var out, info bytes.Buffer
	require.NoError(t, (&routingApply{File: file, DryRun: true}).run(t.Context(), api, &out))
	require.Equal(t, "warning: model a is removed\nno mistakes; not published\n", out.String())
	out.Reset()
	require.NoError(t, (&routingApply{File: file}).run(t.Context(), api, &out))
	require.Equal(t, "revision 3 is in use\n", out.String())
	out.Reset()
	require.NoError(t, (&routingShow{}).run(t.Context(), api, &out, &info))
	require.Equal(t, "providers: {}\n", out.String())
	require.Regexp(t, `^· revision 3 of .*, olga\n$`, info.String())
	out.Reset()
	require.NoError(t, (&routingList{Limit: 1}).run(t.Context(), api, &out))
	require.Regexp(t, `(?s)^REVISION .*\n3 .* api +olga +in use\n$`, out.String())
	require.NoError(t, (&routingActivate{Revision: 2}).Run(t.Context(), api))
	require.Equal(t, `POST /v1/routing/activate {"revision":2}`, requests[len(requests)-1])
	require.Error(t, (&routingApply{File: write(t, t.TempDir(), "broken.yaml", "models: [")}).run(t.Context(), api, &out))
	require.Len(t, requests, 5, "a broken file is not sent")
}
