package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestRequests_SchemaViolated_MessageIsInBerthsWords(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	task := func(change doc) doc {
		d := doc{"serviceId": "career", "template": "resume_summary", "variables": doc{"resume": "text"}}
		for k, v := range change {
			d[k] = v
		}
		return d
	}
	many := doc{}
	for i := range 51 {
		many[fmt.Sprintf("v%d", i)] = "text"
	}
	for name, c := range map[string]struct {
		method, path, token string
		body                any
		field, detail       string
	}{
		"a long id":           {http.MethodPost, "/v1/tasks", h.token("alice"), task(doc{"taskId": strings.Repeat("x", 129)}), "taskId", "must be at most 128 characters"},
		"an unknown locale":   {http.MethodPost, "/v1/tasks", h.token("alice"), task(doc{"locale": "fr"}), "locale", "fr is not a language of resume_summary, which has en, zh"},
		"no text":             {http.MethodPost, "/v1/tasks", h.token("alice"), task(doc{"serviceId": 3}), "serviceId", "must be a string"},
		"a missing field":     {http.MethodPost, "/v1/tasks", h.token("alice"), doc{"template": "resume_summary", "variables": doc{}}, "serviceId", "is missing"},
		"an unknown field":    {http.MethodPost, "/v1/tasks", h.token("alice"), task(doc{"priority": 1}), "priority", "unknown field"},
		"an invalid variable": {http.MethodPost, "/v1/tasks", h.token("alice"), task(doc{"variables": doc{"resume": 3}}), "variables.resume", `must be a string or {"assetId": "…"}`},
		"no asset id":         {http.MethodPost, "/v1/tasks", h.token("alice"), task(doc{"variables": doc{"resume": doc{"assetId": ""}}}), "variables.resume", `must be a string or {"assetId": "…"}`},
		"no object":           {http.MethodPost, "/v1/tasks", h.token("alice"), []string{}, "body", "must be an object"},
		"many variables":      {http.MethodPost, "/v1/tasks", h.token("alice"), task(doc{"variables": many}), "variables", "must have at most 50 fields"},
		"a low number":        {http.MethodGet, "/v1/tasks?limit=0", h.token("alice"), nil, "limit", "must be at least 1"},
		"a high number":       {http.MethodGet, "/v1/tasks?limit=101", h.token("alice"), nil, "limit", "must be at most 100"},
		"no number":           {http.MethodGet, "/v1/tasks?limit=x", h.token("alice"), nil, "limit", "must be an integer"},
		"a pattern":           {http.MethodGet, "/v1/tasks/a%20b", h.token("alice"), nil, "id", "must be 1 to 128 letters, digits and characters of _.@-"},
		"four decimals":       {http.MethodPost, "/v1/accounts/alice/credits", h.operator(), json.RawMessage(`{"amount": 1.0005, "reason": "r"}`), "amount", "must have at most three decimals"},
		"no credits":          {http.MethodPost, "/v1/accounts/alice/credits", h.operator(), json.RawMessage(`{"amount": "5", "reason": "r"}`), "amount", "must be a number"},
		"an exponent of many": {http.MethodPatch, "/v1/models/deepseek-chat", h.operator(), json.RawMessage(`{"rpm": 1, "cap": 1e1}`), "cap", "must be an integer without a decimal point or exponent"},
		"a number too long":   {http.MethodPost, "/v1/accounts/alice/credits", h.operator(), json.RawMessage(`{"amount": 1e999, "reason": "r"}`), "body", "contains a number that is out of range"},
		"a huge number":       {http.MethodDelete, "/v1/nodes/n1?generation=9007199254740992", h.operator(), nil, "generation", "must be at most 9007199254740991"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := h.call(c.method, c.path, c.token, c.body)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, c.field, a.problem.Field, string(a.body))
			require.Equal(t, c.detail, a.problem.Detail, string(a.body))
			require.NotContains(t, string(a.body), "expected")
		})
	}
}

func TestRequests_IdempotencyKeyEmptyOrTwice_Rejected(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	for path, c := range map[string]struct {
		token string
		body  doc
	}{
		"/v1/tasks":                  {h.token("alice"), match()},
		"/v1/conferences":            {h.token("alice"), meeting()},
		"/v1/accounts/alice/credits": {h.operator(), doc{"amount": 1, "reason": "r"}},
	} {
		for detail, keys := range map[string][]string{
			"must not be empty":       {""},
			"must not be given twice": {"k1", "k2"},
		} {
			body, err := json.Marshal(c.body)
			require.NoError(t, err)
			req := h.request(http.MethodPost, path, c.token, bytes.NewReader(body), "Content-Type", "application/json")
			req.Header["Idempotency-Key"] = keys
			a := h.do(req)
			require.Equal(t, http.StatusBadRequest, a.status, "%s %q: %s", path, keys, a.body)
			require.Equal(t, "Idempotency-Key", a.problem.Field, path)
			require.Equal(t, detail, a.problem.Detail, path)
		}
	}
}

func TestRequests_BodyIsNoJSON_MessageSaysSo(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	for body, detail := range map[string]string{
		"{x":                             "must be JSON: invalid character 'x' looking for beginning of object key string",
		"\ufeff{x":                       "must be JSON: invalid character 'x' looking for beginning of object key string",
		"{":                              "must be JSON: unexpected end of JSON input",
		"":                               "must not be empty",
		"{\"serviceId\": \"\xff\"}":      "must be UTF-8",
		strings.Repeat(" ", 4<<20) + " ": "exceeds the limit of 4 MiB",
	} {
		a := h.do(h.request(http.MethodPost, "/v1/tasks", h.token("alice"), strings.NewReader(body), "Content-Type", "application/json"))
		status := http.StatusBadRequest
		if strings.HasPrefix(detail, "exceeds") {
			status = http.StatusRequestEntityTooLarge
		}
		require.Equal(t, status, a.status)
		require.Equal(t, detail, a.problem.Detail, string(a.body))
		require.Equal(t, "body", a.problem.Field, detail)
	}
	a := h.do(h.request(http.MethodPost, "/v1/tasks", h.token("alice"), strings.NewReader("{}"), "Content-Type", "text/plain"))
	require.Equal(t, http.StatusUnsupportedMediaType, a.status)
	require.Equal(t, "Content-Type", a.problem.Field)
	require.Equal(t, "must be application/json", a.problem.Detail)
}

// encoding/json ignores the case of names, and keeps the last of two values.
func TestRequests_FieldInOtherCaseOrTwice_RejectedByName(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	alice, op := h.token("alice"), h.operator()
	const task = `"serviceId": "career", "template": "resume_summary"`
	for name, c := range map[string]struct{ method, path, token, body, field, detail string }{
		"a known field in both cases": {http.MethodPost, "/v1/tasks", alice, `{"SERVICEID": "a", ` + task + `, "variables": {"resume": "r"}}`, "SERVICEID", "unknown field"},
		"another case only":           {http.MethodPatch, "/v1/models/deepseek-chat", op, `{"CAP": 5}`, "CAP", "unknown field"},
		"both cases of an amount":     {http.MethodPost, "/v1/accounts/alice/credits", op, `{"Amount": 1, "amount": 2, "reason": "r"}`, "Amount", "unknown field"},
		"a field twice":               {http.MethodPost, "/v1/tasks", alice, `{"template": "job_match", ` + task + `, "variables": {"resume": "r"}}`, "template", "must not be given twice"},
		"a variable twice":            {http.MethodPost, "/v1/tasks", alice, `{` + task + `, "variables": {"resume": "first", "resume": "second"}}`, "variables.resume", "must not be given twice"},
		"a field of a variable twice": {http.MethodPost, "/v1/tasks", alice, `{` + task + `, "variables": {"resume": {"assetId": "a", "asset\u0049d": "b"}}}`, "variables.resume.assetId", "must not be given twice"},
		"a field in another object":   {http.MethodPut, "/v1/config/strategy", op, `{"times": {"x": 1, "y": 2, "x": 3}}`, "times.x", "must not be given twice"},
		"a field of a free form":      {http.MethodPut, "/v1/config/services", op, `{"asr": [1, {"url": "x", "URL": "y", "url": "z"}]}`, "asr[1].url", "must not be given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := h.call(c.method, c.path, c.token, json.RawMessage(c.body))
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, berth.CodeInvalid, a.problem.Code)
			require.Equal(t, c.field, a.problem.Field, string(a.body))
			require.Equal(t, c.detail, a.problem.Detail, string(a.body))
		})
	}
	free := json.RawMessage(`{"asr": ["whisper"], "ASR": ["other"]}`)
	a := h.call(http.MethodPut, "/v1/config/services", op, free)
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.JSONEq(t, string(free), string(h.call(http.MethodGet, "/v1/config/services", op, nil).body))
}
