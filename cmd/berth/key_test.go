package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"berth/client"
)

// O3: the list shows whether a key is valid.
func TestKeyState_Times_Stated(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for want, k := range map[string]client.Key{
		"valid":                           {},
		"valid until 2026-11-27 12:00:01": {KeySpec: client.KeySpec{ExpiresAt: now.Add(time.Second)}},
		"expired 2026-11-27 12:00:00":     {KeySpec: client.KeySpec{ExpiresAt: now}},
		"revoked 2026-11-26 12:00:00":     {KeySpec: client.KeySpec{ExpiresAt: now}, RevokedAt: now.AddDate(0, 0, -1)},
	} {
		require.Equal(t, want, keyState(k, now))
	}
}

// O3: a budget is that of one key or one team.
func TestBudget_KeyOrTeam_OneIsRequired(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--key or --team is required": {"budget", "show"},
		"can't be used together":      {"budget", "delete", "--key", "k", "--team", "t"},
		"--credits":                   {"budget", "set", "--key", "k"},
		"--period must be one of":     {"budget", "set", "--key", "k", "--credits", "1", "--period", "year"},
	} {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse(args)
		require.ErrorContains(t, err, want, args)
	}
}

// O3: a command that sets something keeps what its flags do not name.
func TestSet_SomeFlags_TheRestIsKept(t *testing.T) {
	t.Parallel()
	objects := map[string]string{
		"/v1/keys/k": `{"keyId":"k","teamId":"t","title":"Old","models":["m"],"rpm":5,"maxCalls":1,"endUsers":true,"serviceTiers":["flex"],"durability":"durable",` +
			`"retention":"24h","replaceResponses":true,"expiresAt":"2027-01-02T15:04:05Z","createdBy":"olga"}`,
		"/v1/keys/d":          `{"keyId":"d","durability":"direct","retention":"none"}`,
		"/v1/budgets/key/k":   `{"kind":"key","id":"k","credits":10,"period":"day","used":3}`,
		"/v1/teams/t":         `{"teamId":"t","title":"T","weight":2,"slots":3,"maxTasks":4,"users":["u"],"services":["s"],"inUse":1}`,
		"/v1/apps/a":          `{"appId":"a","teamId":"t","title":"A","weight":2,"services":["s"]}`,
		"/v1/pools/p":         `{"poolId":"p","kind":"engine","capabilities":["c"],"zone":"z","tenants":["x"],"defined":true}`,
		"/v1/pools/translate": `{"poolId":"translate","capabilities":["translate"],"defined":false}`,
	}
	var put string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, ok := objects[r.URL.Path]
		switch {
		case r.Method == http.MethodPut:
			b, _ := io.ReadAll(r.Body)
			put = string(b)
			_, _ = io.WriteString(w, "{}")
		case !ok:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"status":404,"code":"not_found","detail":"not found"}`)
		default:
			_, _ = io.WriteString(w, text)
		}
	}))
	defer srv.Close()
	for args, want := range map[string]string{
		"key set k --rpm 30": `{"title":"Old","models":["m"],"rpm":30,"maxCalls":1,"serviceTiers":["flex"],"durability":"durable","retention":"24h","replaceResponses":true,"endUsers":true,` +
			`"expiresAt":"2027-01-02T15:04:05Z"}`,
		"key set k --models= --rpm 0 --no-end-users --title= --expires never":               `{"maxCalls":1,"serviceTiers":["flex"],"durability":"durable","retention":"24h","replaceResponses":true}`,
		"key set k --no-replace-responses --no-end-users --expires never --rpm 0 --models=": `{"title":"Old","maxCalls":1,"serviceTiers":["flex"],"durability":"durable","retention":"24h"}`,
		"key set k --durability direct": `{"title":"Old","models":["m"],"rpm":5,"maxCalls":1,"serviceTiers":["flex"],"durability":"direct","endUsers":true,` +
			`"expiresAt":"2027-01-02T15:04:05Z"}`,
		"key set d --tpm 7": `{"tpm":7,"durability":"direct","retention":"none"}`,
		"key set d --durability durable --retention errors":   `{"durability":"durable","retention":"errors"}`,
		"budget set --key k --credits 0.5":                    `{"credits":0.5,"period":"day"}`,
		"budget set --key k --credits 0 --period week":        `{"credits":0,"period":"week"}`,
		"budget set --team new --credits 12.5":                `{"credits":12.5,"period":"month"}`,
		"team set t --slots 9":                                `{"title":"T","weight":2,"slots":9,"maxTasks":4,"users":["u"],"services":["s"]}`,
		"team set t --users= --services a,b":                  `{"title":"T","weight":2,"slots":3,"maxTasks":4,"services":["a","b"]}`,
		"team set n --weight 0.5 --max-tasks 9 --users u|1,v": `{"weight":0.5,"maxTasks":9,"users":["u|1","v"]}`,
		"team set n":                                                `{}`,
		"app set a --weight 3":                                      `{"teamId":"t","title":"A","weight":3,"services":["s"]}`,
		"app set n --team t --title Chat":                           `{"teamId":"t","title":"Chat"}`,
		"pool set p --zone y":                                       `{"kind":"engine","capabilities":["c"],"zone":"y","tenants":["x"]}`,
		"pool set p --tenants= --kind= --capabilities echo":         `{"capabilities":["echo"],"zone":"z"}`,
		"pool set translate --zone y":                               `{"zone":"y"}`,
		"pool set new --capabilities echo --strategy load-balanced": `{"capabilities":["echo"],"strategy":"load-balanced"}`,
	} {
		var cmd commands
		k, err := kong.New(&cmd, enums(), kong.BindTo(t.Context(), (*context.Context)(nil)))
		require.NoError(t, err)
		parsed, err := k.Parse(append(strings.Fields(args), "--url", srv.URL, "--token", "t"))
		require.NoError(t, err, args)
		put = ""
		require.NoError(t, parsed.Run(), args)
		require.JSONEq(t, want, put, args)
	}
	var cmd commands
	k, err := kong.New(&cmd, enums(), kong.BindTo(t.Context(), (*context.Context)(nil)))
	require.NoError(t, err)
	parsed, err := k.Parse([]string{"key", "set", "none", "--rpm", "1", "--url", srv.URL, "--token", "t"})
	require.NoError(t, err)
	put = ""
	require.ErrorContains(t, parsed.Run(), "not found")
	require.Empty(t, put)
}
