package tests

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/internal/identity"
	"berth/internal/testdb"
	"berth/internal/testredis"
)

// plantedSecret is one that settings with a minimal length accept.
const plantedSecret = plantedFirst + plantedLast + plantedFirst + plantedLast

// wrongServers are addresses of servers that a process reaches with the secret, and that do not serve it.
type wrongServers struct {
	name, redis, database, http string
}

// echoing returns the address of a server that sends back what it receives, which clients quote in their errors.
func echoing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				b := make([]byte, 64<<10)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					// As an error of Redis, and as a line that is neither HTTP nor PostgreSQL.
					_, _ = fmt.Fprintf(c, "-ERR %s %q\r\n", plantedSecret, b[:n])
				}
			}()
		}
	}()
	return l.Addr().String()
}

func (w wrongServers) env() []string {
	key := base64.StdEncoding.EncodeToString([]byte((plantedFirst + plantedLast + plantedFirst + plantedLast)[:32]))
	return []string{
		"BERTH_DATABASE=postgres://app:" + plantedSecret + "@" + w.database + "/d?sslmode=disable&password=" + plantedSecret,
		"BERTH_REDIS_ADDR=redis://app:" + plantedSecret + "@" + w.redis, "BERTH_TEMPORAL_ADDR=" + w.http,
		"BERTH_AUTH_SECRET=" + plantedSecret, "BERTH_PAYLOAD_KEYS=k1:" + key,
		"BERTH_OIDC_ISSUER=https://" + w.http, "BERTH_OIDC_AUDIENCE=berth", "BERTH_JWKS_URL=https://" + w.http + "/keys?token=" + plantedSecret,
		"DEEPSEEK_API_KEY=" + plantedSecret, "ZHIPUAI_API_KEY=" + plantedSecret, "BERTH_PROVIDER_KEYS=OPENAI_API_KEY=" + plantedSecret,
		"BERTH_LOCAL_MODEL_URL=http://" + w.http + "/v1", "BERTH_RECORD_URL=https://host.test/" + plantedSecret,
		"BERTH_RECORD_SECRETS=whsec_" + key, "BERTH_LOG_LEVEL=debug",
	}
}

// asked sends a request and searches what of the response arrives in time.
func (s *search) asked(method, address, token string, body []byte) (status int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*time.Second) // some are streams
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body) // a stream has no end
	head, err := json.Marshal(res.Header)
	require.NoError(s.t, err)
	s.examine(method+" "+address, append(append(head, '\n'), text...))
	return res.StatusCode
}

// operations returns method and path of every operation of the API, with ids for its parameters.
func operations(t *testing.T, api string) (all [][2]string) {
	t.Helper()
	res, err := http.Get(api + "/openapi.json") //nolint:noctx // a test's own server
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var doc struct{ Paths map[string]map[string]any }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&doc))
	for path, methods := range doc.Paths {
		for _, name := range []string{"get", "post", "put", "patch", "delete"} {
			if methods[name] == nil {
				continue
			}
			var parts []string
			for part := range strings.SplitSeq(path, "/") {
				if strings.HasPrefix(part, "{") {
					part = "8613800000001"
				}
				parts = append(parts, part)
			}
			all = append(all, [2]string{strings.ToUpper(name), strings.Join(parts, "/")})
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

// What processes answer while their servers cannot be reached, refuse the secret or send it back: health, metrics, and every operation of
// the API. So does berth doctor.
func TestSecrets_InLiveProcesses_AppearInNoAnswer(t *testing.T) { // FI1
	t.Parallel()
	redis := testredis.Start(t) // it has no user app
	_, database := testdb.StartPasswords(t)
	echo := echoing(t)
	total, requests, answered := &search{t: t}, 0, map[int]int{}
	for _, w := range []wrongServers{
		{"closed ports", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"},
		{"servers that send it back", "127.0.0.1:1", echo, echo},
		{"a database that refuses it", "127.0.0.1:1", database, "127.0.0.1:1"},
		{"a Redis that refuses it", redis.Addr(), "127.0.0.1:1", "127.0.0.1:1"},
	} {
		st := &stack{tb: t, dir: t.TempDir(), httpAddr: freeAddr(t)}
		t.Cleanup(st.killAll)
		token, err := identity.Issue(plantedSecret, identity.Grant{UserID: "u", Scopes: []string{"user", "operator", "node"}, Nodes: []string{"*"}, TTL: time.Hour})
		require.NoError(t, err)
		// The API serves its operations once it has its database; until then, it serves health.
		metrics, work, waits := freeAddr(t), freeAddr(t), freeAddr(t)
		api := st.start("berth", []string{"api"}, append(w.env(), "BERTH_HTTP_ADDR="+st.httpAddr, "BERTH_METRICS_ADDR="+metrics, "BERTH_DATABASE=sqlite:"+filepath.Join(st.dir, "berth.db")))
		waiting := st.start("berth", []string{"api"}, append(w.env(), "BERTH_HTTP_ADDR=127.0.0.1:0", "BERTH_METRICS_ADDR="+waits))
		worker := st.start("berth", []string{"worker"}, append(w.env(), "BERTH_METRICS_ADDR="+work))
		served := st.httpAddr
		ended := func(p *process) bool { // where the server refuses the secret
			select {
			case <-p.done:
				return true
			default:
				return false
			}
		}
		for addr, p := range map[string]*process{metrics: api, waits: waiting, work: worker, served: api} {
			st.eventually("health to be served", func() bool {
				return ended(p) || total.asked(http.MethodGet, "http://"+addr+"/readyz", "", nil) != 0
			})
		}
		for _, p := range []*process{waiting, worker} {
			st.eventually("the problem of a server", func() bool {
				return ended(p) || bytes.Contains(p.output(), []byte("waiting for the database"))
			})
		}
		if w.redis == "127.0.0.1:1" {
			require.False(t, ended(api), "%s: %s", w.name, api.tail())
		}
		var all [][2]string
		if !ended(api) {
			all = operations(t, "http://"+served)
		}
		var g errgroup.Group
		g.SetLimit(8)
		found := make(chan *search, 100+10*len(all))
		ask := func(method, address, token string, body string) {
			requests++
			g.Go(func() error {
				one := &search{t: t}
				one.runs = one.asked(method, address, token, []byte(body))
				found <- one
				return nil
			})
		}
		for _, op := range all {
			for _, by := range []string{"", "x." + token[:20], token} {
				ask(op[0], "http://"+served+op[1], by, `{}`)
			}
		}
		for _, addr := range []string{metrics, waits, work, served} {
			for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
				ask(http.MethodGet, "http://"+addr+path, "", "")
			}
		}
		require.NoError(t, g.Wait())
		close(found)
		for one := range found {
			total.bytes += one.bytes
			answered[one.runs]++
		}
		for _, p := range []*process{api, waiting, worker} {
			p.kill()
			total.examine(w.name+": the log of "+p.name, p.output())
		}
		total.dir = st.dir
		total.runUntil(nil, w.name, "berth", []string{"doctor"}, w.env())
	}
	t.Logf("%d requests (by status: %v), %d bytes of answers and logs", requests, answered, total.bytes)
}

// A routing file has the addresses of providers, which may have credentials.
func TestSecrets_InRoutingFile_AppearInNoOutput(t *testing.T) { // FI1
	t.Parallel()
	s := &search{t: t, dir: t.TempDir()}
	p := planted{scheme: "https"}
	for i := range addressForms {
		for _, text := range []string{
			fmt.Sprintf("providers:\n  deepseek: {baseURL: %q, keySetting: DEEPSEEK_API_KEY}\n", p.form(i)),
			fmt.Sprintf("providers:\n  deepseek: {baseURL: 'https://host.test', keySetting: %q}\n", p.form(i)),
		} {
			file := filepath.Join(s.dir, "routing.yaml")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			env := []string{"BERTH_ROUTING_FILE=" + file, "BERTH_AUTH_SECRET=" + secret, "BERTH_TEMPORAL_ADDR=127.0.0.1:1", "BERTH_REDIS_ADDR=127.0.0.1:1", "BERTH_DATABASE=sqlite:" + filepath.Join(s.dir, "b.db")}
			s.run(fmt.Sprintf("routing file, form %d", i), "berth", []string{[]string{"api", "worker", "doctor"}[i%3]}, env)
		}
	}
	t.Logf("%d runs, %d bytes of output", s.runs, s.bytes)
}
