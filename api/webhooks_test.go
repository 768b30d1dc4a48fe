package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
)

const hookURL = "https://hooks.test/t0ken/events"

func privateWebhooks(d *api.Deps) { d.Config.PrivateWebhooks = true }

// O8: a webhook is created with a secret that is shown once, read, changed, tested, given another secret, and deleted.
func TestWebhooks_CreatedChangedAndDeleted_SecretShownOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/search", doc{})
	h.define("/v1/apps/chat", doc{"teamId": "search"})
	a := h.call(http.MethodPost, "/v1/webhooks", h.operator(), doc{
		"teamId": "search", "appId": "chat", "url": hookURL, "title": " Nightly ", "events": []string{"response.failed", "task.completed", "task.completed"},
	})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	created := a.json(t)
	secret, _ := created["secret"].(string)
	require.Regexp(t, `^whsec_[A-Za-z0-9+/]{43}=$`, secret)
	delete(created, "secret")
	id := created["webhookId"].(string)
	hook := doc{
		"webhookId": id, "teamId": "search", "appId": "chat", "url": hookURL, "title": "Nightly", "events": []any{"response.failed", "task.completed"},
		"createdAt": created["createdAt"], "createdBy": "olga",
	}
	require.Equal(t, hook, created)
	path := "/v1/webhooks/" + id
	get := func() doc {
		t.Helper()
		a := h.call(http.MethodGet, path, h.operator(), nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)
	}
	require.Equal(t, hook, get())
	require.Equal(t, hook, h.define(path, get()), "the response of GET is a valid body")

	post := func(path string, status int) doc {
		t.Helper()
		a := h.call(http.MethodPost, path, h.operator(), nil)
		require.Equal(t, status, a.status, string(a.body))
		return a.json(t)
	}
	rotated := post(path+"/secret", http.StatusOK)
	require.NotEqual(t, secret, rotated["secret"])
	require.NotEmpty(t, rotated["formerUntil"])
	w, err := h.ledger.GetWebhook(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{rotated["secret"].(string), secret}, w.Signing(time.Now()), "both sign for a day")
	require.Equal(t, []string{rotated["secret"].(string)}, w.Signing(time.Now().Add(berth.WebhookRotation)))
	rotated = post(path+"/secret", http.StatusOK) // as if the reply was lost
	w, err = h.ledger.GetWebhook(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, w.Signing(time.Now()), 3)
	require.Contains(t, w.Signing(time.Now()), secret)
	for range 5 {
		rotated = post(path+"/secret", http.StatusOK)
	}
	w, err = h.ledger.GetWebhook(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, w.Secrets, berth.MaxWebhookSecrets)
	require.Equal(t, rotated["secret"], w.Secrets[0])

	test := post(path+"/test", http.StatusAccepted)
	require.Equal(t, []any{"webhook.test", "pending", id}, []any{test["type"], test["state"], test["subjectId"]})
	require.Equal(t, []string{test["deliveryId"].(string)}, h.starter.sentEvents())
	_, err = h.ledger.SaveAttempt(t.Context(), test["deliveryId"].(string), berth.WebhookAttempt{At: time.Now(), TookMs: 5, Status: 500, Error: "the server returned 500"})
	require.NoError(t, err)
	list := h.call(http.MethodGet, path+"/deliveries?state=pending", h.operator(), nil).json(t)["deliveries"].([]any)
	require.Len(t, list, 1)
	require.Equal(t, "the server returned 500", list[0].(doc)["log"].([]any)[0].(doc)["error"])
	require.Equal(t, "webhook.test", list[0].(doc)["event"].(doc)["type"])
	again := post(path+"/deliveries/"+test["deliveryId"].(string)+"/resend", http.StatusAccepted)
	require.Equal(t, test["eventId"], again["eventId"])
	require.Len(t, h.starter.sentEvents(), 2)
	b, unlock := h.starter.open()
	b.failure = errDown
	unlock()
	post(path+"/test", http.StatusAccepted) // the reconciliation starts it
	b, unlock = h.starter.open()
	b.failure = nil
	unlock()

	disabled := get()
	disabled["disabled"] = true
	disabled = h.define(path, disabled)
	require.Equal(t, "by request", disabled["disabledWhy"])
	for _, p := range []string{"/test", "/deliveries/" + test["deliveryId"].(string) + "/resend"} {
		a := h.call(http.MethodPost, path+p, h.operator(), nil)
		require.Equal(t, http.StatusConflict, a.status)
		require.Contains(t, a.problem.Detail, "disabled: by request")
	}
	require.NotContains(t, h.define(path, doc{"url": hookURL}), "disabledAt")
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, path+"/deliveries/none/resend", h.operator(), nil).status)
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, path, h.operator(), nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, path, h.operator(), nil).status)

	rows := h.actions("action=create-webhook")
	require.Len(t, rows, 1)
	require.Contains(t, string(rows[0].Detail), `"appId":"chat"`)
	audit := string(h.call(http.MethodGet, "/v1/audit?limit=200", h.operator(), nil).body)
	for _, text := range []string{audit, h.log.String(), string(h.call(http.MethodGet, "/v1/webhooks", h.operator(), nil).body)} {
		require.NotContains(t, text, secret)
		require.NotContains(t, text, rotated["secret"])
	}
	require.NotContains(t, audit+h.log.String(), "t0ken", "the URL may contain a secret")
}

// O8: what is wrong with a webhook is named by its field.
func TestWebhooks_InvalidBody_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/search", doc{})
	h.define("/v1/apps/chat", doc{"teamId": "search"})
	for name, c := range map[string]struct {
		body  doc
		field string
	}{
		"no URL":               {doc{"all": true}, "url"},
		"of nothing":           {doc{"url": hookURL}, "teamId"},
		"empty team":           {doc{"url": hookURL, "teamId": ""}, "teamId"},
		"all beside a team":    {doc{"url": hookURL, "teamId": "search", "all": true}, "all"},
		"all beside a user":    {doc{"url": hookURL, "userId": "alice", "all": true}, "all"},
		"no scheme":            {doc{"all": true, "url": "hooks.test/events"}, "url"},
		"other scheme":         {doc{"all": true, "url": "ftp://hooks.test"}, "url"},
		"not encrypted":        {doc{"all": true, "url": "http://hooks.test"}, "url"},
		"credentials":          {doc{"all": true, "url": "https://a:b@hooks.test"}, "url"},
		"loopback":             {doc{"all": true, "url": "https://127.0.0.1/events"}, "url"},
		"cloud metadata":       {doc{"all": true, "url": "https://169.254.169.254/latest"}, "url"},
		"IPv6 loopback":        {doc{"all": true, "url": "https://[::1]:8443/events"}, "url"},
		"mapped loopback":      {doc{"all": true, "url": "https://[::ffff:127.0.0.1]/events"}, "url"},
		"port":                 {doc{"all": true, "url": "https://hooks.test:99999/"}, "url"},
		"port 0":               {doc{"all": true, "url": "https://hooks.test:0/"}, "url"},
		"fragment":             {doc{"all": true, "url": "https://hooks.test/#a"}, "url"},
		"space":                {doc{"all": true, "url": "https://hooks.test/a b"}, "url"},
		"line":                 {doc{"all": true, "url": "https://hooks.test/\n"}, "url"},
		"text to the left":     {doc{"all": true, "url": "https://evil.test/\u202emoc"}, "url"},
		"percent sign":         {doc{"all": true, "url": "https://hooks.test/%zz"}, "url"},
		"long URL":             {doc{"all": true, "url": "https://hooks.test/" + strings.Repeat("a", 2000)}, "url"},
		"unknown event":        {doc{"all": true, "url": hookURL, "events": []string{"task.completed", "task.done"}}, "events[1]"},
		"team not found":       {doc{"url": hookURL, "teamId": "none"}, "teamId"},
		"app without team":     {doc{"url": hookURL, "appId": "chat"}, "teamId"},
		"app not found":        {doc{"url": hookURL, "teamId": "search", "appId": "none"}, "appId"},
		"user beside team":     {doc{"url": hookURL, "teamId": "search", "userId": "alice"}, "userId"},
		"user not printable":   {doc{"url": hookURL, "userId": "a\u0007"}, "userId"},
		"long title":           {doc{"all": true, "url": hookURL, "title": strings.Repeat("a", 101)}, "title"},
		"unknown field":        {doc{"all": true, "url": hookURL, "secret": "whsec_"}, "secret"},
		"disabled by a number": {doc{"all": true, "url": hookURL, "disabled": 1}, "disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(http.MethodPost, "/v1/webhooks", h.operator(), c.body)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, c.field, a.problem.Field, string(a.body))
		})
	}
	require.Empty(t, h.call(http.MethodGet, "/v1/webhooks", h.operator(), nil).json(t)["webhooks"], "refused calls create nothing")
	id := h.call(http.MethodPost, "/v1/webhooks", h.operator(), doc{"url": hookURL, "userId": "alice"}).json(t)["webhookId"].(string)
	for field, value := range map[string]string{"teamId": "search", "userId": "bob", "webhookId": "wh_other"} {
		a := h.call(http.MethodPut, "/v1/webhooks/"+id, h.operator(), doc{"url": hookURL, field: value})
		require.Equal(t, []any{http.StatusBadRequest, field}, []any{a.status, a.problem.Field}, string(a.body))
	}
	a := h.call(http.MethodPut, "/v1/webhooks/"+id, h.operator(), doc{"url": hookURL, "all": true})
	require.Equal(t, []any{http.StatusBadRequest, "all"}, []any{a.status, a.problem.Field}, string(a.body))

	// A URL of a time when it was permitted is not checked again before it is changed or the webhook is enabled.
	const former = "http://127.0.0.1:9000/events"
	w, err := h.ledger.CreateWebhook(t.Context(), berth.Webhook{
		ID: berth.NewID(berth.WebhookIDPrefix), UserID: "alice", WebhookSettings: berth.WebhookSettings{URL: former}, Secrets: []string{"whsec_"},
	})
	require.NoError(t, err)
	for _, step := range []struct {
		body  doc
		field string
	}{
		{doc{"url": former, "title": "Nightly"}, ""},
		{doc{"url": former, "events": []string{"task.failed"}}, ""},
		{doc{"url": former + "/new"}, "url"},
		{doc{"url": former, "disabled": true}, ""},
		{doc{"url": former, "disabled": true, "title": "Off"}, ""},
		{doc{"url": former + "/new", "disabled": true}, "url"},
		{doc{"url": former}, "url"}, // enables it
		{doc{"url": hookURL}, ""},
	} {
		a := h.call(http.MethodPut, "/v1/webhooks/"+w.ID, h.operator(), step.body)
		if step.field == "" {
			require.Equal(t, http.StatusOK, a.status, "%v: %s", step.body, a.body)
			continue
		}
		require.Equal(t, []any{http.StatusBadRequest, step.field}, []any{a.status, a.problem.Field}, "%v: %s", step.body, a.body)
	}

	inside := newHarness(t, privateWebhooks)
	a = inside.call(http.MethodPost, "/v1/webhooks", inside.operator(), doc{"all": true, "url": "http://127.0.0.1:9000/events"})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
}

// O8: administrators of a team manage its webhooks. Those of others do not exist for them.
func TestWebhooks_TeamAdministrators_OwnTeamOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.teams()
	ann, ben := h.administrator("ann", "a", ""), h.administrator("ben", "b", "")
	create := func(token string, body doc) answer {
		body["url"] = hookURL
		return h.call(http.MethodPost, "/v1/webhooks", token, body)
	}
	of := func(a answer) string {
		t.Helper()
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		return a.json(t)["webhookId"].(string)
	}
	own := create(ann, doc{"appId": "chat"})
	require.Equal(t, "a", own.json(t)["teamId"])
	id, all := of(own), of(create(h.operator(), doc{"all": true}))
	for field, body := range map[string]doc{"teamId": {"teamId": "b"}, "appId": {"appId": "none"}, "userId": {"userId": "ann"}, "all": {"all": true}} {
		a := create(ann, body)
		require.Equal(t, []any{http.StatusForbidden, field}, []any{a.status, a.problem.Field}, string(a.body))
	}
	delivery := h.call(http.MethodPost, "/v1/webhooks/"+id+"/test", ann, nil).json(t)["deliveryId"].(string)
	for _, route := range []string{
		"GET /v1/webhooks/{id}", "PUT /v1/webhooks/{id}", "POST /v1/webhooks/{id}/secret", "POST /v1/webhooks/{id}/test",
		"GET /v1/webhooks/{id}/deliveries", "POST /v1/webhooks/{id}/deliveries/" + delivery + "/resend", "DELETE /v1/webhooks/{id}",
	} {
		method, path, _ := strings.Cut(route, " ")
		request := func(token, id string) int {
			var body any
			if method == http.MethodPut {
				body = doc{"url": hookURL}
			}
			return h.call(method, strings.Replace(path, "{id}", id, 1), token, body).status
		}
		require.Equal(t, http.StatusNotFound, request(ben, id), route)
		require.Equal(t, http.StatusNotFound, request(ann, all), route)
		require.Less(t, request(ann, id), 300, route)
	}
	require.Empty(t, h.call(http.MethodGet, "/v1/webhooks", ben, nil).json(t)["webhooks"])
	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/webhooks?teamId=a", ben, nil).status)
}
