package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/ledger"
	"berth/internal/template"
	"berth/internal/testtemplate"
)

// What GET returns of a task's input is what POST takes: the same task again, for every template and every kind of value.
func TestTask_InputOfResponse_SubmitsEqualTask(t *testing.T) { // T30
	t.Parallel()
	h := newHarness(t)
	image := pngOf(t, 8, 8)
	draws := 0
	rapid.Check(t, func(rt *rapid.T) {
		draws++
		user := fmt.Sprintf("user-%d", draws)
		token := h.token(user)
		drawn := rapid.SampledFrom(testtemplate.All()).Draw(rt, "template")
		body := doc{"template": drawn.Name, "serviceId": rapid.SampledFrom([]string{"svc", "a.b@c"}).Draw(rt, "service"), "variables": doc{}}
		if locale := rapid.SampledFrom([]string{"", "en", "zh", "zh-Hans"}).Draw(rt, "locale"); locale != "" {
			body["locale"] = locale
		}
		if title := rapid.SampledFrom([]string{"", "Mine", "工作 一"}).Draw(rt, "title"); title != "" {
			body["title"] = title
		}
		chosen := map[string]string{} // group to variable
		variables := drawn.Variables
		for _, v := range variables {
			if v.Group != "" && chosen[v.Group] == "" {
				mates := slices.DeleteFunc(slices.Clone(variables), func(m template.Variable) bool { return m.Group != v.Group })
				chosen[v.Group] = rapid.SampledFrom(mates).Draw(rt, v.Group).Name
			}
			if v.Group != "" && chosen[v.Group] != v.Name || v.Group == "" && !v.Required && !rapid.Bool().Draw(rt, v.Name) {
				continue
			}
			text := rapid.SampledFrom([]string{"I write Go.", "多行\r\n文字", " spaces ", `{"assetId": "a"}`, "a_" + strings.Repeat("a", 52)}).Draw(rt, "text")
			var value any = text
			switch kind := rapid.SampledFrom(v.Kinds()).Draw(rt, "kind"); kind {
			case berth.KindTextAsset:
				text += v.Name // a text that is a file, too, would have its name
				value = doc{"assetId": h.upload(user, v.Name+".txt", []byte(text)).json(t)["assetId"]}
			case berth.KindImageAsset:
				value = doc{"assetId": h.upload(user, v.Name+".png", image).json(t)["assetId"], "kind": kind}
			}
			body["variables"].(doc)[v.Name] = value
		}
		first := h.call(http.MethodPost, "/v1/tasks", token, body)
		require.Equal(rt, http.StatusAccepted, first.status, string(first.body))
		id := first.json(t)["taskId"].(string)
		got := h.call(http.MethodGet, "/v1/tasks/"+id, token, nil).json(t)
		listed := h.call(http.MethodGet, "/v1/tasks", token, nil).json(t)["tasks"].([]any)[0].(doc)
		for _, field := range []string{"template", "serviceId", "locale", "variables", "title"} {
			require.Equal(rt, got[field], listed[field], field)
		}
		again := doc{"template": got["template"], "serviceId": got["serviceId"], "locale": got["locale"], "variables": got["variables"]}
		if body["title"] != nil {
			again["title"] = got["title"]
		}
		replay := h.call(http.MethodPost, "/v1/tasks", token, again)
		require.Equal(rt, http.StatusOK, replay.status, "an equal request: %s", replay.body)
		require.Equal(rt, id, replay.json(t)["taskId"])
		second := h.call(http.MethodPost, "/v1/tasks", token, again, "Idempotency-Key", "run-again")
		require.Equal(rt, http.StatusAccepted, second.status, string(second.body))
		require.NotEqual(rt, id, second.json(t)["taskId"])
		copied := h.call(http.MethodGet, "/v1/tasks/"+second.json(t)["taskId"].(string), token, nil).json(t)
		for _, field := range []string{"template", "serviceId", "locale", "variables", "title", "inputs"} {
			require.Equal(rt, got[field], copied[field], field)
		}
		var order []string
		for _, in := range got["inputs"].([]any) {
			in := in.(doc)
			name := in["variable"].(string)
			order = append(order, name)
			require.Equal(rt, doc{"assetId": in["assetId"], "kind": in["kind"]}, got["variables"].(doc)[name])
			content := h.call(http.MethodGet, "/v1/assets/"+in["assetId"].(string), token, nil)
			require.EqualValues(rt, len(content.body), in["size"])
			if text, ok := body["variables"].(doc)[name].(string); ok {
				require.Equal(rt, text, string(content.body))
			}
		}
		require.Len(rt, order, len(body["variables"].(doc)))
		require.True(rt, slices.IsSortedFunc(order, func(a, b string) int {
			at := func(name string) int {
				return slices.IndexFunc(variables, func(v template.Variable) bool { return v.Name == name })
			}
			return at(a) - at(b)
		}), "%v", order)
	})
}

func TestSubmitTask_VariableOfTask_RefusedOnceItsContentIsGone(t *testing.T) { // T30
	t.Parallel()
	h := newHarness(t)
	alice := h.token("alice")
	id := h.call(http.MethodPost, "/v1/tasks", alice, match()).json(t)["taskId"].(string)
	task, err := h.ledger.GetTask(t.Context(), ref(id))
	require.NoError(t, err)
	h.finish(task, "the answer")
	got := h.call(http.MethodGet, "/v1/tasks/"+id, alice, nil).json(t)
	require.Equal(t, "I write Go.", got["title"])
	require.InEpsilon(t, float64(task.Price)/1000, got["price"], 1e-9)
	again := match(with("variables", got["variables"]), with("serviceId", "another"))

	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/assets/"+task.Variables["jobText"], alice, nil).status)
	refused := h.call(http.MethodPost, "/v1/tasks", alice, again)
	require.Equal(t, http.StatusBadRequest, refused.status)
	require.Equal(t, "variables.jobText.assetId", refused.problem.Field)
	require.Contains(t, refused.problem.Detail, "erased; upload it again")
	inputs := h.call(http.MethodGet, "/v1/tasks/"+id, alice, nil).json(t)["inputs"].([]any)
	require.NotContains(t, inputs[0], "erased")
	require.Equal(t, doc{"variable": "jobText", "assetId": task.Variables["jobText"], "kind": "text_asset", "erased": true}, inputs[1])

	require.Equal(t, http.StatusOK, h.call(http.MethodDelete, "/v1/tasks/"+id+"/content", alice, nil).status)
	got = h.call(http.MethodGet, "/v1/tasks/"+id, alice, nil).json(t)
	require.NotContains(t, got, "title")
	for _, in := range got["inputs"].([]any) {
		require.Equal(t, true, in.(doc)["erased"])
	}
	require.Equal(t, "variables.jobText.assetId", h.call(http.MethodPost, "/v1/tasks", alice, again).problem.Field)

	for _, e := range h.ledger.Expiries() { // as once both are old
		if e.Name == "empty assets" {
			_, _, err := e.Remove(t.Context(), time.Now().Add(time.Hour), 10)
			require.NoError(t, err)
		}
	}
	refused = h.call(http.MethodPost, "/v1/tasks", alice, again)
	require.Equal(t, "variables.jobText.assetId", refused.problem.Field)
	require.Contains(t, refused.problem.Detail, "asset not found")
	got = h.call(http.MethodGet, "/v1/tasks/"+id, alice, nil).json(t)
	require.Equal(t, doc{"assetId": task.Variables["resume"]}, got["variables"].(doc)["resume"])
}

func TestSubmitTask_TextIsIDOfOwnAsset_RefusedWithTheRightForm(t *testing.T) { // T30
	t.Parallel()
	h := newHarness(t)
	alice := h.token("alice")
	text, _ := h.upload("alice", "cv.txt", []byte("I write Go.")).json(t)["assetId"].(string)
	image, _ := h.upload("alice", "cv.png", pngOf(t, 8, 8)).json(t)["assetId"].(string)
	foreign, _ := h.upload("bob", "cv.txt", []byte("I write C.")).json(t)["assetId"].(string)
	erased, _ := h.upload("alice", "old.txt", []byte("old")).json(t)["assetId"].(string)
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/assets/"+erased, alice, nil).status)
	for name, c := range map[string]struct {
		value   any
		refused string
	}{
		"own text":             {text, "variables.resume"},
		"own image":            {image, "variables.resume"},
		"in white space":       {"\n " + text + " ", "variables.resume"},
		"erased":               {erased, "variables.resume"},
		"another user's":       {foreign, ""},
		"of no asset":          {"a_" + strings.Repeat("a", 52), ""},
		"a sentence with it":   {"see " + text, ""},
		"a wrong kind":         {doc{"assetId": text, "kind": "image_asset"}, "variables.resume.kind"},
		"an unknown kind":      {doc{"assetId": text, "kind": "text"}, "variables.resume"},
		"another field":        {doc{"assetId": text, "name": "x"}, "variables.resume"},
		"an image for a text":  {doc{"assetId": image, "kind": "image_asset"}, "variables.resume.assetId"},
		"the reference itself": {doc{"assetId": text, "kind": "text_asset"}, ""},
	} {
		a := h.call(http.MethodPost, "/v1/tasks", alice, match(variable("resume", c.value)), "Idempotency-Key", name)
		if c.refused == "" {
			require.Equal(t, http.StatusAccepted, a.status, "%s: %s", name, a.body)
			continue
		}
		require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, a.status, name)
		require.Equal(t, c.refused, a.problem.Field, "%s: %s", name, a.body)
		if c.refused == "variables.resume" && ledger.IsAssetID(strings.TrimSpace(fmt.Sprint(c.value))) {
			require.Contains(t, a.problem.Detail, fmt.Sprintf(`{"assetId": %q}`, strings.TrimSpace(c.value.(string))), name)
		}
	}
}

func TestTask_Title_GivenElseFileElseFirstWords(t *testing.T) { // T30
	t.Parallel()
	h := newHarness(t)
	alice := h.token("alice")
	asset := func(name, text string) doc {
		return doc{"assetId": h.upload("alice", name, []byte(text)).json(t)["assetId"]}
	}
	image := doc{"assetId": h.upload("alice", "截图.png", pngOf(t, 8, 8)).json(t)["assetId"]}
	for name, c := range map[string]struct {
		change []func(doc)
		want   any
	}{
		"given":                         {[]func(doc){with("title", " My cafe\u0301 \U0001f469\u200d\U0001f469\u200d\U0001f467 ")}, "My café \U0001f469\u200d\U0001f469\u200d\U0001f467"},
		"first text of the template":    {nil, "I write Go."},
		"a file":                        {[]func(doc){variable("jobText", asset("job.docx.txt", "We seek"))}, "job.docx.txt"},
		"the first file":                {[]func(doc){variable("jobText", asset("job.txt", "We seek you")), variable("resume", asset("cv.txt", "I write C."))}, "cv.txt"},
		"an image":                      {[]func(doc){with("variables", doc{"resume": "I write Rust.", "jobImage": image})}, "截图.png"},
		"a text that was uploaded once": {[]func(doc){variable("resume", "I write C.")}, "cv.txt"},
		"given beside a file":           {[]func(doc){with("title", "Given"), variable("resume", asset("cv.txt", "I write C."))}, "Given"},
	} {
		a := h.call(http.MethodPost, "/v1/tasks", alice, match(c.change...), "Idempotency-Key", name)
		require.Equal(t, http.StatusAccepted, a.status, "%s: %s", name, a.body)
		require.Equal(t, c.want, h.call(http.MethodGet, "/v1/tasks/"+a.json(t)["taskId"].(string), alice, nil).json(t)["title"], name)
	}
	for name, title := range map[string]string{"a line break": "a\nb", "too long": strings.Repeat("字", 81), "an override": "a\u202eb", "nothing visible": "\u200b"} {
		a := h.call(http.MethodPost, "/v1/tasks", alice, match(with("title", title)), "Idempotency-Key", name)
		require.Equal(t, http.StatusBadRequest, a.status, name)
		require.Equal(t, "title", a.problem.Field, name)
	}
	// Another title is another request.
	one := h.call(http.MethodPost, "/v1/tasks", alice, match(with("title", "One")), "Idempotency-Key", "titles")
	require.Equal(t, http.StatusAccepted, one.status)
	require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/tasks", alice, match(with("title", " One ")), "Idempotency-Key", "titles").status)
	require.Equal(t, berth.CodeIdempotencyMismatch, h.call(http.MethodPost, "/v1/tasks", alice, match(with("title", "Two")), "Idempotency-Key", "titles").problem.Code)
}

func TestTaskList_TitleOrService_Filters(t *testing.T) { // T30
	t.Parallel()
	h := newHarness(t)
	alice := h.token("alice")
	for title, service := range map[string]string{"Backend Engineer": "jobs", "后端工程师": "jobs", "100%": "mail"} {
		a := h.call(http.MethodPost, "/v1/tasks", alice, match(with("title", title), with("serviceId", service)))
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	}
	titles := func(token, query string) (found []any) {
		t.Helper()
		a := h.call(http.MethodGet, "/v1/tasks?"+query, token, nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		for _, task := range a.json(t)["tasks"].([]any) {
			found = append(found, task.(doc)["title"])
		}
		return found
	}
	for query, want := range map[string][]any{
		"q=ENGINEER": {"Backend Engineer"}, "q=+engineer+": {"Backend Engineer"}, "q=" + url.QueryEscape("工程"): {"后端工程师"}, "q=%25": {"100%"}, "q=_": nil,
		"open=true&serviceId=mail": {"100%"}, "open=true&status=FAILED": nil, "template=other": nil, "serviceId=mail": {"100%"}, "q=engineer&serviceId=mail": nil, "q=engineer&serviceId=jobs&template=job_match&status=PENDING": {"Backend Engineer"},
	} {
		require.ElementsMatch(t, want, titles(alice, query), query)
	}
	require.Len(t, titles(alice, "q="), 3)
	require.Empty(t, titles(h.token("bob"), "q=engineer"))
	require.Equal(t, []any{"Backend Engineer"}, titles(h.operator(), "userId=alice&q=engineer"))
	for query, field := range map[string]string{
		"q=" + strings.Repeat("a", 81): "q", "q=a%0Ab": "q", "q=%FF": "q", "serviceId=a%20b": "serviceId", "q=a&q=b": "q",
		"status=DONE": "status", "from=yesterday": "from", "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": "from",
	} {
		a := h.call(http.MethodGet, "/v1/tasks?"+query, alice, nil)
		require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, a.status, query)
		require.Equal(t, field, a.problem.Field, query)
	}
	require.Equal(t, "q", h.call(http.MethodGet, "/v1/tasks?allUsers=true&q=a", h.operator(), nil).problem.Field)
}
