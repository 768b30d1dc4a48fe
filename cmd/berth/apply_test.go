package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/api"
	"berth/client"
	"berth/internal/apikey"
	"berth/internal/fleet"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/internal/testtemplate"
	"berth/internal/waiting"
	"berth/lua"
)

// The dependencies of the API that the calls of these tests do not need.
type (
	noStarter    struct{ api.Starter }
	noHub        struct{ api.Hub }
	noSignalling struct{ api.Signalling }
	noGateway    struct{ api.Gateway }
)

type healthy struct{}

func (healthy) Report() health.Report { return health.Report{Status: health.OK} }

// applyServer is the API for operators with a real database and a real Redis.
type applyServer struct {
	*client.Client

	keys    *apikey.Keys
	changes atomic.Int64 // requests that change something
	refused atomic.Int64 // the number of the change that fails, 0 for none
}

func startApplyServer(t *testing.T) *applyServer {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	db, err := ledger.Open(ctx, testledger.Migrated.SQLite(t), logger)
	require.NoError(t, err)
	scripts := lua.New(testredis.Start(t).Client(), lua.Keys{Cell: testredis.Cell(t)})
	settings := fleet.New(scripts, fleet.Options{Settle: 5 * time.Millisecond, Tick: 2 * time.Second, Logger: logger})
	models, err := routing.Read("", llm.Settings{}, logger)
	require.NoError(t, err)
	require.NoError(t, models.Open(ctx, db))
	const secret = "a secret of the tests that is long enough for HS256"
	s := &applyServer{keys: apikey.New(db)}
	handler, err := api.New(api.Deps{
		Starter: noStarter{}, Hub: noHub{}, Signalling: noSignalling{}, Gateway: noGateway{}, Positions: waiting.NewBoard(scripts, logger),
		Ledger: db, Routing: models, Templates: testtemplate.Catalog(t, db), Scripts: scripts, Fleet: settings, Keys: s.keys, Health: healthy{}, Logger: logger,
		Config: api.Config{Secrets: identity.Secrets{secret}, HeartbeatInterval: time.Second, Version: "test"},
	})
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && s.changes.Add(1) == s.refused.Load() {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":503,"title":"Service Unavailable","detail":"the database is unavailable; retry","code":"unavailable","retryAfter":1}`)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	done := make(chan error, 1)
	go func() { done <- settings.Run(ctx) }()
	<-settings.Ready()
	t.Cleanup(func() {
		srv.Close()
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, db.Close())
	})
	token, err := identity.Issue(secret, identity.Grant{UserID: "olga", Scopes: []string{identity.ScopeOperator}, TTL: time.Hour})
	require.NoError(t, err)
	s.Client = client.New(srv.URL, token)
	return s
}

// apply applies a text.
func (s *applyServer) apply(t *testing.T, text string, change ...func(*applyCommand)) (out, info string, err error) {
	t.Helper()
	c := applyCommand{File: write(t, t.TempDir(), "berth.yaml", text)}
	for _, f := range change {
		f(&c)
	}
	var o, i bytes.Buffer
	err = c.run(t.Context(), s.Client, &o, &i)
	return o.String(), i.String(), err
}

func dryRun(c *applyCommand) { c.DryRun = true }

func secretsIn(dir string) func(*applyCommand) { return func(c *applyCommand) { c.Secrets = dir } }

const applied = `providers: {own: {baseURL: "http://127.0.0.1:9/v1"}}
models:
  large: {provider: own, aliases: [gpt-5]} # the one of the answers
  small: {provider: own}
routes: {default: {paid: large, free: small}, vision: {paid: large, free: small}}
teams:
  search:
    title: Search
    weight: 2.5
    users: [bob, ann]
    budget: {credits: 1000.125, period: week}
    keys:
      Nightly: {models: [gpt-5, small], rpm: 60, serviceTiers: [flex], expiresAt: 2099-01-02T15:04:05+01:00, budget: {credits: 5}}
  ads:
apps:
  chat: {team: search, services: [web], keys: {Nightly: {endUsers: true, durability: direct}}}
`

const appliedLines = `routing: %[1]s
team ads: %[2]s
team search: %[2]s
budget of team search: %[2]s
application chat: %[2]s
key Nightly of team search: %[2]s
budget of key Nightly of team search: %[2]s
key Nightly of application chat: %[2]s
`

var (
	shownSecret = regexp.MustCompile(`(?m)^  secret, which is shown only once: (\S+)\n`)
	warningLine = regexp.MustCompile(`(?m)^warning: .*\n`)
)

// O3: a file declares the routing, teams, applications, keys and budgets. A second run changes nothing, and what the file does not have is left alone.
func TestApply_File_CreatedChangedOrUnchanged(t *testing.T) {
	t.Parallel()
	s := startApplyServer(t)
	_, err := s.PutTeam(t.Context(), client.Team{TeamID: "other", Users: []string{"kim"}})
	require.NoError(t, err)
	_, err = s.CreateKey(t.Context(), client.Key{TeamID: "other", KeySpec: client.KeySpec{Title: "Nightly"}})
	require.NoError(t, err)
	created := fmt.Sprintf(appliedLines, "changed", "created")

	out, info, err := s.apply(t, applied, dryRun)
	require.NoError(t, err)
	require.Equal(t, created, warningLine.ReplaceAllString(out, ""))
	require.Contains(t, out, "warning: model deepseek-chat is removed")
	require.Equal(t, "· created: 7, changed: 1, unchanged: 0; nothing was changed, because of --dry-run\n", info)
	now, err := s.Routing(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, now.Revision)
	_, err = s.Team(t.Context(), "search")
	require.Error(t, err)

	out, info, err = s.apply(t, applied)
	require.NoError(t, err)
	secrets := shownSecret.FindAllStringSubmatch(out, -1)
	require.Equal(t, created, shownSecret.ReplaceAllString(warningLine.ReplaceAllString(out, ""), ""))
	require.Equal(t, "· created: 7, changed: 1, unchanged: 0\n", info)
	require.Len(t, secrets, 2)
	access, err := s.keys.Find(t.Context(), secrets[0][1])
	require.NoError(t, err)
	k, err := s.Key(t.Context(), access.Key.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"large", "small"}, k.Models)
	require.Equal(t, []any{"search", "", "Nightly", 60, []string{"flex"}, "2099-01-02T14:04:05Z"},
		[]any{k.TeamID, k.AppID, k.Title, k.RPM, k.ServiceTiers, k.ExpiresAt.Format(time.RFC3339)})
	b, err := s.Budget(t.Context(), "key", k.KeyID)
	require.NoError(t, err)
	require.Equal(t, "5 month", fmt.Sprint(b.Credits, " ", b.Period))
	b, err = s.Budget(t.Context(), "team", "search")
	require.NoError(t, err)
	require.Equal(t, "1000.125 week", fmt.Sprint(b.Credits, " ", b.Period))
	now, err = s.Routing(t.Context())
	require.NoError(t, err)
	require.Contains(t, now.Content, "# the one of the answers", "comments are kept")
	require.NotContains(t, now.Content, "teams")

	changes := s.changes.Load()
	for _, again := range []string{applied, "# another comment\n" + strings.Replace(applied, "[bob, ann]", "[ann, bob]", 1)} {
		out, info, err = s.apply(t, again)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(appliedLines, "unchanged", "unchanged"), out)
		require.Equal(t, "· created: 0, changed: 0, unchanged: 8\n", info)
	}
	require.EqualValues(t, 2, s.changes.Load()-changes, "only the check of the routing was sent")

	out, _, err = s.apply(t, `
teams:
  search: {title: Searching, slots: 3, users: [ann], budget: {credits: 7, period: week}, keys: {Nightly: {tpm: 10, retention: 24h, expiresAt: "2099-01-02T14:04:05Z"}}}
`)
	require.NoError(t, err)
	require.Equal(t, `team search: changed (title, weight, slots, users)
budget of team search: changed (credits)
key Nightly of team search: changed (models, rpm, tpm, serviceTiers, retention)
`, out)
	changed, err := s.Key(t.Context(), k.KeyID)
	require.NoError(t, err)
	require.Equal(t, client.KeySpec{Title: "Nightly", TPM: 10, Durability: "durable", Retention: "24h", ExpiresAt: k.ExpiresAt}, changed.KeySpec)
	kim, err := s.Team(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, []string{"kim"}, kim.Users, "another team is left alone")
	b, err = s.Budget(t.Context(), "key", k.KeyID)
	require.NoError(t, err)
	require.Equal(t, "5", b.Credits.String(), "a budget that the file does not have is left alone")

	require.NoError(t, s.RevokeKey(t.Context(), k.KeyID))
	out, _, err = s.apply(t, "teams: {search: {title: Searching, slots: 3, users: [ann], keys: {Nightly: }}}")
	require.NoError(t, err)
	require.Contains(t, out, "key Nightly of team search: created\n  secret", "a revoked key is replaced")
}

// O3: all mistakes of a file are named with their line before anything is changed.
func TestApply_BadFile_AllMistakesNamedAndNothingChanged(t *testing.T) {
	t.Parallel()
	s := startApplyServer(t)
	_, _, err := s.apply(t, applied)
	require.NoError(t, err)
	for range 2 {
		_, err = s.CreateKey(t.Context(), client.Key{TeamID: "ads", KeySpec: client.KeySpec{Title: "Twice"}})
		require.NoError(t, err)
	}
	const routes = "providers: {own: {baseURL: \"http://127.0.0.1:9/v1\"}}\nmodels: {large: {provider: own}}\n"
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"empty file"}},
		{"no object", "[a]", []string{"(line 1): must have fields such as teams: and models:"}},
		{"not YAML", "teams:\n\tsearch: {}\n", []string{"line 2 is indented with a tab"}},
		{"names twice", "teams:\n  a: {}\n  b: {}\n  a: {}\n", []string{`line 4: mapping key "a" already defined at line 2`}},
		{"titles that are the same", "teams:\n  a:\n    keys:\n      \" N\": {}\n      N: {}\n", []string{`teams.a.keys.N (line 5): is the title of another key as well, which the file has as " N"`}},
		{"misspelled fields", "teem: {}\nteams:\n  a: {wieght: 1, keys: {N: {rmp: 1}}}\napps:\n  b: {users: [x]}\n", []string{
			"teem (line 1): unknown field: write teams", "teams.a.wieght (line 3): unknown field: write weight", "teams.a.keys.N.rmp (line 3): unknown field: write rpm",
			"apps.b.users (line 5): unknown field",
		}},
		{"values", "teams:\n  a b: {}\n  c: {weight: 0, slots: -1, title: 7, users: [1]}\n  d: {budget: {credits: 1.0001, period: year}}\n  e: {budget: {period: day}}\n", []string{
			"teams.a b (line 2): must be 1 to 128 letters", "teams.c.weight (line 3)", "teams.c.slots (line 3)", "teams.c.title (line 3)", "teams.c.users.0 (line 3)",
			"teams.d.budget.credits (line 4): must be a number with at most three decimals", "teams.d.budget.period (line 4)", "teams.e.budget (line 5)",
		}},
		{"values of keys", "teams:\n  a:\n    keys:\n      N: {rpm: 1.5, maxCalls: -2, expiresAt: soon}\n      M: {serviceTiers: [fast], models: [\"\"], endUsers: 1}\n      \" \": {durability: both}\n      D: {durability: direct, retention: 1h}\n      R: {retention: long}\n      P: {durability: direct, replaceResponses: true}\n", []string{
			"keys.N.rpm (line 4)", "keys.N.maxCalls (line 4)", "keys.N.expiresAt (line 4): must be a time such as", "keys.M.serviceTiers.0 (line 5)", "keys.M.models.0 (line 5)",
			"keys.M.endUsers (line 5)", "keys.  (line 6): a key needs a title", "keys. .durability (line 6)", "keys.D.retention (line 7): must be none for direct calls",
			"keys.R.retention (line 8): must be all, errors", "keys.P.replaceResponses (line 9): must be false for direct calls",
		}},
		{"titles and ids", "teams:\n  a: {title: \"x\\u0007\", users: [\"..\"], services: [\"s p\"], keys: {\"y\\u0007\": {}}}\n", []string{
			"teams.a.title (line 2): must not contain U+0007", "teams.a.users.0 (line 2)", "teams.a.services.0 (line 2): must be 1 to 128 letters", "(line 2): must not contain U+0007",
		}},
		{"members of two", "teams:\n  a: {users: [ann], services: [s]}\n  b:\n    users:\n    - ann\napps:\n  c: {services: [s]}\n", []string{
			`teams.b.users.0 (line 5): "ann" belongs to teams.a as well`, `apps.c.services.0 (line 7): "s" belongs to teams.a as well`,
		}},
		{"application without team", "apps:\n  z: {keys: {N: {}}}\n", []string{"apps.z (line 2): needs a team, because it has keys"}},
		{"routing", "models: {large: {provider: own, cap: many}}\nteams:\n  a: {wieght: 1}\n", []string{"providers", "models.large.cap (line 1)", "teams.a.wieght (line 3)"}},
		{"all but the models", "routes: {}\n", []string{"missing properties"}},

		{"models of the file", routes + "teams: {a: {keys: {N: {models: [large, small]}}}}", []string{`teams.a.keys.N.models.1 (line 3): the routing has no model "small"`}},
		{"models of the server", "teams: {a: {keys: {N: {models: [gpt-6]}}, users: [x]}}", []string{`teams.a.keys.N.models.0 (line 1): the routing has no model "gpt-6"`}},
		{"unknown team", "apps: {z: {team: nowhere}}", []string{"apps.z.team (line 1): neither the file nor the server has the team nowhere"}},
		{"application that needs its team", "apps: {chat: {}}", []string{"apps.chat (line 1): needs a team, because the server has keys of it, such as key_"}},
		{"member of another", "teams:\n  a: {users: [ann], services: [web]}\n", []string{
			`teams.a.users.0 (line 2): "ann" belongs to team search, which the file does not have`, `teams.a.services.0 (line 2): "web" belongs to application chat`,
		}},
		{"keys with one title", "teams: {ads: {keys: {Twice: {}, Other: {expiresAt: 2020-01-01T00:00:00Z}}}}", []string{
			"teams.ads.keys.Twice (line 1): the server has several keys with this title: key_", "teams.ads.keys.Other.expiresAt (line 1): must be in the future",
		}},
	} {
		changes := s.changes.Load()
		out, _, err := s.apply(t, c.text)
		require.Error(t, err, c.name)
		require.Equal(t, statusWrong, statusOf(err), "%s: %s", c.name, err)
		for _, want := range c.want {
			require.ErrorContains(t, err, want, c.name)
		}
		require.LessOrEqual(t, strings.Count(err.Error(), "\n")+1, len(c.want), "%s: %s", c.name, err)
		require.Empty(t, out, c.name)
		checks := int64(0)
		if strings.HasPrefix(c.text, routes) {
			checks = 1 // of the routing
		}
		require.Equal(t, changes+checks, s.changes.Load(), "%s: nothing may be changed", c.name)
	}
	_, _, err = s.apply(t, applied, func(c *applyCommand) { c.File += ".missing" })
	require.ErrorContains(t, err, "no such file")
}

// O3: secrets are written to files that only their user reads and that replace no others.
func TestApply_SecretsDirectory_NewFilesOnly(t *testing.T) {
	t.Parallel()
	s := startApplyServer(t)
	dir := filepath.Join(t.TempDir(), "secrets")
	const text = "teams: {a: {keys: {Night job: {}, 夜间: {}}}}"
	out, _, err := s.apply(t, text, secretsIn(dir), dryRun)
	require.NoError(t, err)
	require.NotContains(t, out, "secret")
	require.NoDirExists(t, dir)
	out, _, err = s.apply(t, text, secretsIn(dir))
	require.NoError(t, err)
	require.NotContains(t, out, "sk-berth-")
	for name, title := range map[string]string{"team.a.Night-job": "Night job", "team.a.夜间": "夜间"} {
		path := filepath.Join(dir, name)
		require.Contains(t, out, fmt.Sprintf("key %s of team a: created\n  secret: %s\n", title, path))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		secret, err := os.ReadFile(path) //nolint:gosec // a file of the test
		require.NoError(t, err)
		access, err := s.keys.Find(t.Context(), string(secret))
		require.NoError(t, err)
		require.Equal(t, title, access.Key.Title)
	}
	out, _, err = s.apply(t, text, secretsIn(dir))
	require.NoError(t, err, "files of keys that exist are not written")
	require.NotContains(t, out, "created")

	changes := s.changes.Load()
	existing := write(t, dir, "team.a.Other", "mine")
	_, _, err = s.apply(t, "teams: {a: {keys: {Other: {}, x y: {}, x-y: {}, "+strings.Repeat("夜", 100)+": {}}}}", secretsIn(dir))
	for _, want := range []string{existing + ", which exists", "as that of \"x y\"", "name of more than 255 bytes"} {
		require.ErrorContains(t, err, want)
	}
	_, _, err = s.apply(t, "teams: {a: {keys: {New: {}}}}", secretsIn(existing))
	require.Error(t, err)
	require.Equal(t, changes, s.changes.Load())
}

// O3: after a failure in the middle, the same command does the rest.
func TestApply_FailsInTheMiddle_NextRunContinues(t *testing.T) {
	t.Parallel()
	for failing := range int64(9) { // of the changes, the first of which checks the routing
		t.Run(fmt.Sprint(failing+1), func(t *testing.T) {
			t.Parallel()
			s := startApplyServer(t)
			dir := t.TempDir()
			s.refused.Store(failing + 1)
			out, _, err := s.apply(t, applied, secretsIn(dir))
			require.ErrorContains(t, err, "the database is unavailable")
			require.Equal(t, statusFailed, statusOf(err))
			done := strings.Count(out, ": created") + strings.Count(out, ": changed")
			if failing > 0 {
				require.EqualValues(t, failing-1, done, out)
				require.ErrorContains(t, err, fmt.Sprintf("created or changed: %d), and the same command continues here", done))
			}
			out, _, err = s.apply(t, applied, secretsIn(dir))
			require.NoError(t, err)
			require.Equal(t, done, strings.Count(out, ": unchanged"), out)
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, files, 2)
			for _, f := range files {
				secret, err := os.ReadFile(filepath.Join(dir, f.Name()))
				require.NoError(t, err)
				_, err = s.keys.Find(t.Context(), string(secret))
				require.NoError(t, err)
			}
		})
	}
}

// O3: users and services move between the teams and applications of a file, also in both directions.
func TestApply_MembersMove_InOneRun(t *testing.T) {
	t.Parallel()
	s := startApplyServer(t)
	_, _, err := s.apply(t, "teams: {a: {users: [ann, both], services: [s]}, b: {users: [bob]}}\napps: {c: {services: [t]}}")
	require.NoError(t, err)
	const swapped = "teams: {a: {users: [bob, both], services: [t]}, b: {users: [ann]}}\napps: {c: {services: [s]}}"
	out, _, err := s.apply(t, swapped)
	require.NoError(t, err)
	require.Equal(t, "team a: changed (users, services)\nteam b: changed (users)\napplication c: changed (services)\n", out)
	out, _, err = s.apply(t, swapped)
	require.NoError(t, err)
	require.NotContains(t, out, ": changed")
}

// O10: what berth import litellm writes is such a file.
func TestApply_ImportedFile_Applied(t *testing.T) {
	t.Parallel()
	s := startApplyServer(t)
	var imported, none bytes.Buffer
	require.NoError(t, (&importLiteLLM{File: write(t, t.TempDir(), "config.yaml", liteLLM)}).run(&imported, &none))
	for _, want := range []string{"changed", "unchanged"} {
		out, _, err := s.apply(t, imported.String())
		require.NoError(t, err)
		require.Equal(t, "routing: "+want+"\n", warningLine.ReplaceAllString(out, ""))
		now, err := s.Routing(t.Context())
		require.NoError(t, err)
		require.Equal(t, imported.String(), now.Content)
	}
}
