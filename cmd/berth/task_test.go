package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

func TestTask_UnknownID_ErrorNamesItAndWhatToCheck(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"status":404,"code":"not_found","detail":"not found"}`)
	}))
	defer srv.Close()
	api := client.New(srv.URL, "t")
	x := oneTask{ID: "x"}
	for name, err := range map[string]error{
		"get":    (&taskGet{oneTask: x}).Run(t.Context(), api),
		"watch":  (&taskWatch{oneTask: x}).Run(t.Context(), api),
		"cancel": (&taskCancel{oneTask: x}).Run(t.Context(), api),
	} {
		require.EqualError(t, err, "task x not found: check the id, and that BERTH_TOKEN belongs to the user who submitted it", name)
		require.Equal(t, statusWrong, statusOf(err), name)
	}
}

func TestTask_SeveralUsersHaveTheID_UserSelectsOne(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("userId") != "bob":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"status":409,"code":"conflict","field":"userId","detail":"several users have a task with this id; add userId"}`)
		case r.URL.Path == "/v1/tasks/x/events":
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{}`)
		}
	}))
	defer srv.Close()
	for _, command := range []string{"get", "watch", "cancel"} {
		run := func(args ...string) error {
			var cmd commands
			k, err := kong.New(&cmd, enums(), kong.BindTo(t.Context(), (*context.Context)(nil)))
			require.NoError(t, err)
			parsed, err := k.Parse(append([]string{"task", command, "x", "--url", srv.URL, "--token", "t"}, args...))
			require.NoError(t, err)
			return parsed.Run()
		}
		require.EqualError(t, run(), "several users have a task x: select one with --user", command)
		require.NoError(t, run("--user", "bob"), command)
	}
}

func TestTask_AttemptIsLost_OutputHasTheFinalText(t *testing.T) { // T10
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1\nevent: token\ndata: {\"text\":\"Six ye\"}\n\n",
			"id: 2\nevent: reset\ndata: {\"message\":\"the last attempt failed\"}\n\n",
			"id: 3\nevent: token\ndata: {\"text\":\"Six years\"}\n\n",
			"id: 4\nevent: token\ndata: {\"text\":\" of Go.\"}\n\n",
			"id: 5\nevent: done\ndata: {\"text\":\"Six years of Go.\"}\n\n")
	}))
	defer srv.Close()
	for live, want := range map[bool]string{
		false: "Six years of Go.\n",
		true:  "Six ye\n--- the answer starts again ---\nSix years of Go.\n",
	} {
		var out, info bytes.Buffer
		require.NoError(t, follow(t.Context(), client.New(srv.URL, "t"), "x", screen{&out, &info, live}))
		require.Equal(t, want, out.String(), "live: %t", live)
		require.Equal(t, "· the last attempt failed\n", info.String(), "live: %t", live)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "answer"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	require.False(t, terminal(file))
}

func TestTask_TextsWereErased_SaysSo(t *testing.T) {
	t.Parallel()
	var out, info bytes.Buffer
	require.NoError(t, finished(berth.Event{Usage: &berth.Usage{InputTokens: 7, OutputTokens: 3}}, false, &out, &info))
	require.Empty(t, out.String())
	require.Equal(t, "· the texts of the task were erased\n· done: 7 tokens in, 3 out\n", info.String())
	info.Reset()
	require.NoError(t, finished(berth.Event{Result: []byte("{}")}, false, &out, &info))
	require.Equal(t, "{}\n", out.String())
	require.Empty(t, info.String())
}

func TestTaskList_TruncatedAnswer_IsMarked(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, printTasks(&out, []client.Task{
		{TaskRequest: berth.TaskRequest{ID: "t1"}, Status: berth.TaskCompleted, FinishReason: "stop"},
		{TaskRequest: berth.TaskRequest{ID: "t2"}, Status: berth.TaskCompleted, FinishReason: berth.FinishLength, Title: "后端工程师"},
	}))
	lines := strings.Split(out.String(), "\n")
	require.NotContains(t, lines[1], "truncated")
	require.Contains(t, lines[2], "COMPLETED, truncated")
	require.Regexp(t, "  后端工程师$", lines[2])
}

// fakeTemplates are what a server lists.
var fakeTemplates = []client.Template{{Name: "triage", Variables: []client.TemplateVariable{
	{Name: "report", Kind: "document", Group: "report"}, {Name: "screenshot", Kind: "image", Group: "report"}, {Name: "notes", Kind: "text"},
}}}

// G6: the variables are those of the server's template.
func TestTaskSubmit_ImageInPlaceOfText_OnlyWhereTheTemplateTakesIt(t *testing.T) {
	t.Parallel()
	sent := make(chan client.Submission, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/v1/templates":
			_ = json.NewEncoder(w).Encode(map[string]any{"templates": fakeTemplates})
			return
		case "/v1/tasks":
			var s client.Submission
			_ = json.NewDecoder(r.Body).Decode(&s)
			sent <- s
		}
		fmt.Fprint(w, `{"assetId":"a","taskId":"t1"}`)
	}))
	defer srv.Close()
	image := filepath.Join(t.TempDir(), "image.png")
	require.NoError(t, os.WriteFile(image, []byte("\x89PNG\r\n\x1a\n"), 0o600))
	huge := filepath.Join(t.TempDir(), "huge")
	require.NoError(t, os.WriteFile(huge, nil, 0o600))
	require.NoError(t, os.Truncate(huge, berth.MaxUploadBytes+1))
	for name, c := range map[string]struct {
		taskSubmit
		variable, refused string
	}{
		"an image":                  {taskSubmit{Template: "triage", Var: []string{"screenshot=@" + image}}, "screenshot", ""},
		"an image in place of text": {taskSubmit{Template: "triage", Var: []string{"report=@" + image}}, "screenshot", ""},
		"no alternative":            {taskSubmit{Template: "triage", Var: []string{"notes=@" + image}}, "", "--var notes: triage takes a text or document, which "},
		"unknown":                   {taskSubmit{Template: "triage", Var: []string{"mood=@" + image}}, "", "--var mood: unknown variable; triage takes report, screenshot, notes"},
		"not a pair":                {taskSubmit{Template: "triage", Var: []string{"notes"}}, "", "--var notes: write NAME=TEXT or NAME=@FILE"},
		"larger than any upload":    {taskSubmit{Template: "triage", Var: []string{"notes=@" + huge}}, "", "--var notes: " + huge + " has 67108865 bytes, more than the limit of 67108864"},
		"endless":                   {taskSubmit{Template: "triage", Var: []string{"notes=@/dev/zero"}}, "", "--var notes: /dev/zero is neither a regular file nor a pipe"},
		"no such file":              {taskSubmit{Template: "triage", Var: []string{"notes=@" + image + "x"}}, "", "no such file"},
		"unknown template":          {taskSubmit{Template: "poem", Var: []string{"notes=x"}}, "", `template "poem" not found: use one of triage`},
	} {
		err := c.Run(t.Context(), client.New(srv.URL, "t"))
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, map[string]any{c.variable: map[string]any{"assetId": "a"}}, (<-sent).Variables, name)
	}
}

func TestTaskSubmit_FromTask_NewTaskWithItsInput(t *testing.T) { // T30
	t.Parallel()
	type request struct {
		client.Submission
		key string
	}
	sent := make(chan request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/v1/tasks/t0":
			fmt.Fprint(w, `{"taskId":"t0","title":"Old","serviceId":"svc","template":"triage","locale":"zh","tier":"paid",
				"variables":{"notes":{"assetId":"r","kind":"text_asset"},"screenshot":{"assetId":"i","kind":"image_asset"}}}`)
		case r.URL.Path == "/v1/templates":
			_ = json.NewEncoder(w).Encode(map[string]any{"templates": fakeTemplates})
		case r.URL.Path == "/v1/assets":
			fmt.Fprint(w, `{"assetId":"new"}`)
		default:
			s := request{key: r.Header.Get("Idempotency-Key")}
			_ = json.NewDecoder(r.Body).Decode(&s.Submission)
			sent <- s
			fmt.Fprint(w, `{"taskId":"t1"}`)
		}
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "job.txt")
	require.NoError(t, os.WriteFile(file, []byte("We seek"), 0o600))
	asset := func(id string, kind berth.VariableKind) map[string]any {
		v := map[string]any{"assetId": id}
		if kind != "" {
			v["kind"] = string(kind)
		}
		return v
	}
	notes, image := asset("r", berth.KindTextAsset), asset("i", berth.KindImageAsset)
	keys := map[string]bool{}
	for name, c := range map[string]struct {
		taskSubmit
		want client.Submission
	}{
		"in a version": {
			taskSubmit{Version: "v2"},
			client.Submission{Title: "Old", ServiceID: "svc", Template: "triage", TemplateVersion: "v2", Locale: "zh", Variables: map[string]any{"notes": notes, "screenshot": image}},
		},
		"as it was": {taskSubmit{}, client.Submission{Title: "Old", ServiceID: "svc", Template: "triage", Locale: "zh", Variables: map[string]any{"notes": notes, "screenshot": image}}},
		"with another text, in place of its image": {
			taskSubmit{Var: []string{"report=@" + file, "notes=n"}, Title: "New", Locale: "en", Service: "other"},
			client.Submission{Title: "New", ServiceID: "other", Template: "triage", Locale: "en", Variables: map[string]any{"report": asset("new", ""), "notes": "n"}},
		},
		"with other notes":      {taskSubmit{Var: []string{"notes=n"}}, client.Submission{ServiceID: "svc", Template: "triage", Locale: "zh", Variables: map[string]any{"screenshot": image, "notes": "n"}}},
		"with another template": {taskSubmit{Template: "other"}, client.Submission{Title: "Old", ServiceID: "svc", Template: "other", Locale: "zh", Variables: map[string]any{"notes": notes, "screenshot": image}}},
		"with an id":            {taskSubmit{ID: "mine"}, client.Submission{TaskID: "mine", Title: "Old", ServiceID: "svc", Template: "triage", Locale: "zh", Variables: map[string]any{"notes": notes, "screenshot": image}}},
	} {
		c.From = "t0"
		require.NoError(t, c.Run(t.Context(), client.New(srv.URL, "t")), name)
		got := <-sent
		require.Equal(t, c.want, got.Submission, name)
		require.Equal(t, c.ID == "", got.key != "", name)
		require.False(t, got.key != "" && keys[got.key], "each is a new task")
		keys[got.key] = true
	}
	require.ErrorContains(t, (&taskSubmit{}).Run(t.Context(), client.New(srv.URL, "t")), "--template, or --from")
}

func TestTaskSubmit_Replay_SaysSo(t *testing.T) {
	t.Parallel()
	var out, info bytes.Buffer
	printAcceptance(client.Acceptance{TaskID: "t1", Status: berth.TaskCompleted, Replay: true}, &out, &info)
	require.Equal(t, "t1\n", out.String())
	require.Equal(t, "· this task had already been submitted (status COMPLETED); nothing was started\n", info.String())
}

func TestTaskSubmit_Downgraded_SaysWhy(t *testing.T) {
	t.Parallel()
	var out, info bytes.Buffer
	printAcceptance(client.Acceptance{TaskID: "t1"}, &out, &info)
	require.Empty(t, info.String())
	printAcceptance(client.Acceptance{TaskID: "t2", Downgraded: true}, &out, &info)
	require.Equal(t, "t1\nt2\n", out.String())
	require.Contains(t, info.String(), "uses the free tier, because the account has too few credits")
}
