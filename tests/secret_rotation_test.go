package tests

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/identity"
	"berth/internal/sim"
	"berth/internal/testdb"
	"berth/internal/testredis"
)

// rotation is a stack whose secrets are in files, with servers that require them.
type rotation struct {
	*stack
	t        *testing.T
	server   *redis.Client // Redis itself
	database *pgx.Conn     // with all permissions
	keys     sync.Map      // keys that the provider accepts, and whether each was used
	token    atomic.Pointer[string]
	requests atomic.Int64
	failures chan string
	stop     func() // ends the steady load
}

const (
	rotatedSecret = "another-secret-of-tests-that-is-long-enough-for-hs256"
	// steady and burst are numbers of concurrent callers.
	steady, burst = 3, 30
)

// write replaces a file as Kubernetes does.
func (r *rotation) write(name, text string) {
	path := filepath.Join(r.dir, name)
	require.NoError(r.t, os.WriteFile(path+".new", []byte(text+"\n"), 0o600))
	require.NoError(r.t, os.Rename(path+".new", path))
}

func (r *rotation) acl(rules ...any) {
	require.NoError(r.t, r.server.Do(r.t.Context(), append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err())
}

func (r *rotation) sql(statement string, args ...any) {
	_, err := r.database.Exec(r.t.Context(), statement, args...)
	require.NoError(r.t, err)
}

func (r *rotation) count(query string) (n int) {
	require.NoError(r.t, r.database.QueryRow(r.t.Context(), query).Scan(&n))
	return n
}

func (r *rotation) signWith(secret string) {
	token, err := identity.Issue(secret, identity.Grant{UserID: "alice", Scopes: []string{"user"}, TTL: time.Hour})
	require.NoError(r.t, err)
	r.token.Store(&token)
}

// call runs a task, or reads or writes the database, and records a failure.
func (r *rotation) call(ctx context.Context, n int) {
	c := client.New("http://"+r.httpAddr, *r.token.Load())
	var err error
	switch n % 3 {
	case 0:
		err = r.runTask(ctx, c)
	case 1:
		_, _, err = c.Tasks(ctx, client.TaskQuery{Limit: 5})
	default:
		_, err = c.Upload(ctx, "note.txt", []byte(fmt.Sprintf("note %d", n)))
	}
	r.requests.Add(1)
	if err != nil && ctx.Err() == nil {
		select {
		case r.failures <- err.Error():
		default:
		}
	}
}

// runTask runs a task of one model call to its end.
func (r *rotation) runTask(ctx context.Context, c *client.Client) error {
	acc, err := c.Submit(ctx, client.Submission{
		TaskID: berth.NewID("t"), ServiceID: "career", Template: "job_summary",
		Variables: map[string]any{"jobText": "Go engineer, Redis and Temporal"},
	}, "")
	if err != nil {
		return err
	}
	for ev, err := range c.Follow(ctx, acc.TaskID, "") {
		if err != nil {
			return err
		}
		if ev.Event.Type == berth.EventError {
			return fmt.Errorf("task %s: %s", acc.TaskID, ev.Event.Message)
		}
	}
	return nil
}

// load calls the API with so many callers until stop is called.
func (r *rotation) load(callers int) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				r.call(ctx, n)
			}
		})
	}
	return func() { cancel(); calling.Wait() }
}

// idle selects connections that no caller is about to use: a pool checks those that were idle for a second.
const idle = "SELECT pid FROM pg_stat_activity WHERE usename IN ('one', 'two') AND state = 'idle' AND now() - state_change > interval '2 seconds'"

// renew ends the idle connections, of which a burst has left many, and makes another burst, which needs new ones. Calls pause while
// connections are ended: one that a caller takes in this moment would fail, which has nothing to do with passwords.
func (r *rotation) renew() {
	r.eventually("idle connections", func() bool { return r.count("SELECT count(*) FROM ("+idle+") AS idle") > 0 })
	r.stop()
	defer func() { r.stop = r.load(steady) }()
	r.sql("SELECT pg_terminate_backend(pid, 10000) FROM (" + idle + ") AS idle")
	list, err := r.server.Do(r.t.Context(), "CLIENT", "LIST", "TYPE", "normal").Text()
	require.NoError(r.t, err)
	for line := range strings.Lines(list) {
		var id, seconds int64
		for field := range strings.FieldsSeq(line) {
			_, _ = fmt.Sscanf(field, "id=%d", &id)
			_, _ = fmt.Sscanf(field, "idle=%d", &seconds)
		}
		if strings.Contains(line, "user=app") && seconds >= 2 {
			require.NoError(r.t, r.server.Do(r.t.Context(), "CLIENT", "KILL", "ID", id).Err())
		}
	}
	last, err := r.server.ClientID(r.t.Context()).Result()
	require.NoError(r.t, err)
	r.sql("CREATE TABLE IF NOT EXISTS rotations (at TIMESTAMPTZ DEFAULT clock_timestamp())")
	r.sql("INSERT INTO rotations DEFAULT VALUES")
	stop := r.load(burst)
	defer stop()
	r.eventually("a new connection to PostgreSQL", func() bool {
		return r.count("SELECT count(*) FROM pg_stat_activity WHERE usename = 'two' AND backend_start > (SELECT max(at) FROM rotations)") > 0
	})
	r.eventually("a new connection to Redis", func() bool {
		list, err := r.server.Do(r.t.Context(), "CLIENT", "LIST", "TYPE", "normal").Text()
		require.NoError(r.t, err)
		for line := range strings.Lines(list) {
			var id int64
			_, _ = fmt.Sscanf(line, "id=%d", &id)
			if id > last && strings.Contains(line, "user=app") {
				return true
			}
		}
		return false
	})
}

// complete waits until the provider has received a key, and fails if a request has failed.
func (r *rotation) complete(phase, key string) {
	r.eventually("a call with the provider's key", func() bool { used, ok := r.keys.Load(key); return ok && used == true })
	select {
	case failure := <-r.failures:
		require.Fail(r.t, "a request failed "+phase, failure)
	default:
	}
	r.t.Logf("%s: %d requests so far, none failed", phase, r.requests.Load())
}

// The passwords of Redis and of the database, the key of a provider and the secret of tokens change under load: first in the servers,
// which accept both, then in the files, and then the former ones are refused. No request fails, and no process restarts.
func TestSecrets_RotatedUnderLoad_NoRequestFails(t *testing.T) { // FM6
	t.Parallel()
	r := &rotation{t: t, server: testredis.Start(t).Client(), failures: make(chan string, 1)}
	r.keys.Store("key-one", false)
	provider := httptest.NewServer(r.provider())
	defer provider.Close()
	db, addr := testdb.StartPasswords(t)
	admin := db.Database(t)
	var err error
	r.database, err = pgx.Connect(t.Context(), admin)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.database.Close(context.WithoutCancel(t.Context()))) }()
	r.sql("CREATE ROLE one SUPERUSER LOGIN PASSWORD 'db-one'")
	r.acl("on", ">redis-one", "~*", "&*", "+@all")
	u, err := url.Parse(admin)
	require.NoError(t, err)
	database := func(user, password string) string {
		return (&url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: addr, Path: u.Path}).String()
	}
	routes := filepath.Join(t.TempDir(), "routing.yaml")
	builtIn, err := os.ReadFile("../internal/llm/routing.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(routes, []byte(strings.Replace(string(builtIn), "https://api.deepseek.com", provider.URL+"/v1", 1)), 0o600))

	r.stack = prepareStack(t, t.TempDir(), with("BERTH_REDIS_ADDR="+r.server.Options().Addr, "BERTH_REDIS_USER=app",
		"BERTH_REDIS_PASSWORD_FILE=redis", "BERTH_DATABASE=", "BERTH_DATABASE_FILE=database", "BERTH_AUTH_SECRET=", "BERTH_AUTH_SECRET_FILE=auth",
		"DEEPSEEK_API_KEY_FILE=key", "BERTH_ROUTING_FILE="+routes, "BERTH_LOG_LEVEL=info"))
	t.Cleanup(r.close)
	r.write("redis", "redis-one")
	r.write("database", database("one", "db-one"))
	r.write("auth", secret)
	r.write("key", "key-one")
	r.boot()
	r.user("alice")
	r.signWith(secret)
	r.stop = r.load(steady)
	defer func() { r.stop() }()
	r.load(burst)()
	r.complete("before", "key-one")

	// Both are valid.
	r.acl(">redis-two")
	r.sql("CREATE ROLE two SUPERUSER LOGIN PASSWORD 'db-two'")
	r.keys.Store("key-two", false)
	r.write("redis", "redis-two")
	r.write("database", database("two", "db-two"))
	r.write("key", "key-two")
	r.write("auth", rotatedSecret+","+secret)
	r.renew()
	r.complete("while both are valid", "key-two")
	r.eventually("the API to know the new secret", func() bool {
		token, err := identity.Issue(rotatedSecret, identity.Grant{UserID: "alice", Scopes: []string{"user"}, TTL: time.Hour})
		require.NoError(t, err)
		_, _, err = client.New("http://"+r.httpAddr, token).Tasks(t.Context(), client.TaskQuery{Limit: 1})
		return err == nil
	})
	former := *r.token.Load()
	r.signWith(rotatedSecret)
	r.stop() // a call that began with the former token may take longer than this is accepted
	r.stop = r.load(steady)

	// The former ones are refused.
	r.acl("<redis-one")
	r.sql("ALTER ROLE one NOLOGIN")
	r.keys.Delete("key-one")
	r.write("auth", rotatedSecret)
	r.renew()
	r.complete("afterwards", "key-two")
	r.eventually("the API to refuse the former secret", func() bool {
		_, _, err := client.New("http://"+r.httpAddr, former).Tasks(t.Context(), client.TaskQuery{Limit: 1})
		return err != nil
	})
	r.stop()

	doctor := r.start("berth", []string{"doctor"}, r.settings)
	<-doctor.done
	require.True(t, doctor.cmd.ProcessState.Success(), string(doctor.output()))
	for _, p := range r.started {
		for _, hidden := range []string{"redis-one", "redis-two", "db-one", "db-two", "key-one", "key-two", secret, rotatedSecret} {
			require.NotContains(t, string(p.output()), hidden, p.name)
		}
	}

	// Without a valid password, the log names the setting.
	r.write("redis", "redis-three")
	require.NoError(t, r.server.ClientKillByFilter(t.Context(), "USER", "app").Err())
	for _, p := range []*process{r.api, r.worker} {
		r.eventually("the error to name the setting", func() bool {
			return strings.Contains(string(p.output()), "BERTH_REDIS_PASSWORD_FILE: the server refused this secret")
		})
	}
	r.write("redis", "redis-two")
	r.eventually("the processes to connect again", func() bool { return r.runTask(t.Context(), client.New("http://"+r.httpAddr, *r.token.Load())) == nil })
}

// provider is the model simulator behind a check of the key.
func (r *rotation) provider() http.Handler {
	model := modelHandler(sim.Options{})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		key := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		if _, ok := r.keys.Load(key); !ok {
			http.Error(w, `{"error":{"code":"invalid_api_key"}}`, http.StatusUnauthorized)
			return
		}
		r.keys.Store(key, true)
		model.ServeHTTP(w, req)
	})
}
