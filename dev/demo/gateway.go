package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth"
	"berth/client"
	"berth/internal/devserver"
	"berth/internal/freeport"
	"berth/internal/identity"
	"berth/internal/pause"
)

// gateway is what stands between the programs and the provider: two processes of it, so that one can be killed.
type gateway struct {
	name string
	// addrs are the addresses of its two processes, and header is what each request to them has besides that of the program.
	addrs  []string
	header http.Header
	// path of its API.
	path string
	// start starts one of the processes and returns when it is ready.
	start func(ctx context.Context, i int) (*running, error)
	// worker starts one of two workers; nil without workers.
	worker func(i int) (*running, error)
	// keys are the keys of the programs by topic, those without one use key.
	keys map[string]string
	key  string
}

func loopback() (string, error) {
	port, _, err := freeport.Reserve() // for as long as the demonstration runs
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// berthGateway is berth with Temporal and Redis of its own.
type berthGateway struct {
	gateway

	operator *client.Client
	teams    []string
}

// prices of a token in thousandths of a credit. Input costs little, so that a call costs almost what was reserved for it.
const (
	inputPrice  = 1
	outputPrice = 100
)

func price(input, output int64) berth.Credits {
	return berth.Credits(input*inputPrice + output*outputPrice)
}

// routing is the routing file: one model with all accounts.
func routing(accounts []account, provider string) string {
	var b strings.Builder
	b.WriteString("providers:\n")
	for _, a := range accounts {
		fmt.Fprintf(&b, "  %s: {baseURL: \"http://%s/%s/v1\"}\n", a.name, provider, a.name)
	}
	// Credits are for a million tokens.
	fmt.Fprintf(&b, "models:\n  %s:\n    credits: {input: %d, output: %d}\n", modelName, inputPrice*1000, outputPrice*1000)
	b.WriteString("    maxOutputTokens: 1000\n    upstreams:\n")
	for _, a := range accounts {
		fmt.Fprintf(&b, "      - {provider: %s, cap: %d}\n", a.name, a.cap)
	}
	fmt.Fprintf(&b, "routes: {default: {paid: %[1]s, free: %[1]s}}\n", modelName)
	return b.String()
}

// startBerth starts berth with keys for the programs.
func startBerth(ctx context.Context, p *processes, bin string, accounts []account, provider string) (*berthGateway, error) {
	var addrs [4]string
	var err error
	for i := range addrs {
		if addrs[i], err = loopback(); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(p.dir, "routing.yaml")
	if err := os.WriteFile(file, []byte(routing(accounts, provider)), 0o600); err != nil {
		return nil, err
	}
	secret, data := rand.Text()+rand.Text(), filepath.Join(p.dir, "data")
	infra, err := p.start("berth-dev", []string{filepath.Join(bin, "berth-dev")}, []string{
		"BERTH_DATA_DIR=" + data, "BERTH_DEV_ONLY=redis,temporal",
		"BERTH_REDIS_ADDR=" + addrs[0], "BERTH_TEMPORAL_ADDR=" + addrs[1], "BERTH_METRICS_ADDR=off",
	})
	if err == nil {
		err = infra.await(ctx, func(context.Context) error { _, err := devserver.Running(data); return err })
	}
	if err != nil {
		return nil, err
	}
	settings := []string{
		"BERTH_REDIS_ADDR=" + addrs[0], "BERTH_TEMPORAL_ADDR=" + addrs[1], "BERTH_METRICS_ADDR=off", "BERTH_AUTH_SECRET=" + secret,
		"BERTH_DATABASE=sqlite:" + filepath.Join(p.dir, "berth.db"), "BERTH_ROUTING_FILE=" + file,
		"BERTH_RECONCILE_EVERY=1s", "BERTH_RECONCILE_PAUSE=1s",
	}
	g := &berthGateway{gateway: gateway{name: "berth", addrs: addrs[2:], path: "/openai/v1", keys: map[string]string{}}}
	g.start = func(ctx context.Context, i int) (*running, error) {
		addr := g.addrs[i]
		env := append([]string{"BERTH_HTTP_ADDR=" + addr}, settings...)
		r, err := p.start(fmt.Sprint("berth-api-", i+1), []string{filepath.Join(bin, "berth"), "api"}, env)
		if err == nil {
			err = r.await(ctx, responds("http://"+addr+"/readyz"))
		}
		return r, err
	}
	g.worker = func(i int) (*running, error) {
		return p.start(fmt.Sprint("berth-worker-", i+1), []string{filepath.Join(bin, "berth"), "worker"}, settings)
	}
	token, err := identity.Issue(secret, identity.Grant{UserID: "operator", Scopes: []string{"operator"}, TTL: time.Hour})
	if err != nil {
		return nil, err
	}
	// The second process answers: the first one will be killed.
	g.operator = client.New("http://"+g.addrs[1], token)
	return g, nil
}

// setUp creates the teams with their keys and budgets. Budgets of teams are never reached: they show what is reserved and used.
func (g *berthGateway) setUp(ctx context.Context, programs []program, durability string) error {
	teams := map[string]bool{}
	for _, of := range programs {
		team := teamOf(of)
		if !teams[team] {
			teams[team] = true
			g.teams = append(g.teams, team)
			if _, err := g.operator.PutTeam(ctx, client.Team{TeamID: team}); err != nil {
				return err
			}
			spec := client.BudgetSpec{Credits: 1_000_000 * berth.Credit, Period: berth.PeriodTotal}
			if _, err := g.operator.PutBudget(ctx, berth.BudgetTeam, team, spec); err != nil {
				return err
			}
		}
		phase, _, _ := strings.Cut(of.topic, "/")
		name := phase + "/" + of.name
		if phase == phaseBudget { // one key for all
			name = phase
		}
		if _, ok := g.keys[name]; ok {
			continue
		}
		key, err := g.operator.CreateKey(ctx, client.Key{TeamID: team, KeySpec: client.KeySpec{Durability: durability}})
		if err != nil {
			return err
		}
		g.keys[name] = key.Secret
		if phase == phaseBudget {
			room := price(0, answerTokens) * (2*budgetRoom + 1) / 2
			if _, err := g.operator.PutBudget(ctx, berth.BudgetKey, key.KeyID, client.BudgetSpec{Credits: room, Period: berth.PeriodTotal}); err != nil {
				return err
			}
		}
	}
	return nil
}

// charged is what berth has recorded.
type charged struct {
	input, output int64
	credits       berth.Credits
	// used is what the budgets of the teams have as used, with what is reserved.
	used berth.Credits
}

func (g *berthGateway) charged(ctx context.Context) (c charged, err error) {
	sums, err := g.operator.UsageSums(ctx, url.Values{"by": {"team"}})
	if err != nil {
		return c, err
	}
	for _, s := range sums.Sums {
		c.input, c.output, c.credits = c.input+s.InputTokens, c.output+s.OutputTokens, c.credits+s.Credits
	}
	for _, team := range g.teams {
		b, err := g.operator.Budget(ctx, berth.BudgetTeam, team)
		if err != nil {
			return c, err
		}
		c.used += b.Used
	}
	return c, nil
}

// settled waits until what was reserved for the calls of the killed process was returned: the reconciliation does that when it was not seen for
// a minute.
func (g *berthGateway) settled(ctx context.Context) (c charged, err error) {
	err = pause.Until(ctx, settleTimeout, time.Second/2, func(ctx context.Context) error {
		var failed error
		if c, failed = g.charged(ctx); failed == nil && c.used != c.credits {
			failed = fmt.Errorf("%s credits are still reserved", c.used-c.credits)
		}
		return failed
	})
	if c.used != c.credits {
		return c, nil // a line of the scoreboard fails
	}
	return c, err
}

const settleTimeout = 100 * time.Second

// startPortkey returns the gateway of portkey.ai, see its documentation of configs: calls are spread over all accounts, and one that fails at its
// account is made at the next one.
func startPortkey(p *processes, examples string, accounts []account, provider string) (*gateway, error) {
	type target map[string]any
	var chains []target
	for i := range accounts {
		var chain []target
		for j := range accounts {
			a := accounts[(i+j)%len(accounts)]
			chain = append(chain, target{"provider": "openai", "api_key": "key", "custom_host": "http://" + provider + "/" + a.name + "/v1"})
		}
		chains = append(chains, target{"strategy": target{"mode": "fallback"}, "targets": chain})
	}
	config, err := json.Marshal(target{
		"strategy": target{"mode": "loadbalance"}, "targets": chains,
		"retry": target{"attempts": 2, "on_status_codes": []int{429, 500, 502, 503, 504}, "use_retry_after_header": true},
	})
	if err != nil {
		return nil, err
	}
	g := &gateway{name: "portkey", path: "/v1", key: "key", header: http.Header{"X-Portkey-Config": {string(config)}}}
	for range 2 {
		addr, err := loopback()
		if err != nil {
			return nil, err
		}
		g.addrs = append(g.addrs, addr)
	}
	// It listens on all addresses of the host; the demonstration needs one.
	const local = `data:text/javascript,import net from "node:net";const listen=net.Server.prototype.listen;` +
		`net.Server.prototype.listen=function(port,_,...rest){return listen.call(this,port,"127.0.0.1",...rest)}`
	g.start = func(ctx context.Context, i int) (*running, error) {
		_, port, err := net.SplitHostPort(g.addrs[i])
		if err != nil {
			return nil, err
		}
		program := filepath.Join(examples, "portkey", "node_modules", "@portkey-ai", "gateway", "build", "start-server.js")
		argv := []string{"node", "--import", local, program, "--port=" + port, "--headless"}
		r, err := p.start(fmt.Sprint("portkey-", i+1), argv, []string{"NODE_ENV=production"})
		if err == nil {
			err = r.await(ctx, responds("http://"+g.addrs[i]+"/"))
		}
		return r, err
	}
	return g, nil
}
