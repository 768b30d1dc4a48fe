package llm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Check is what a provider shows without a call that costs anything.
type Check struct {
	// Provider and BaseURL are where calls are sent; KeySetting is the setting of the key, empty for none.
	Provider, BaseURL, KeySetting string
	// Accepted are the models whose calls the provider accepts as far as it can be known. Listed: it listed them.
	Accepted []string
	Listed   bool
	Faults   []CheckFault
	// Models are those of which it accepts the calls.
	Models []string
}

// CheckFault is what is wrong with a provider.
type CheckFault struct {
	// Certain: calls fail. Otherwise they may.
	Certain bool
	// Said is the provider's own reason, or that of the connection. Advice states what to change.
	Said, Advice string
	// Models are those whose calls it concerns.
	Models []string
}

const (
	// checkTimeout bounds the wait for each response of a check.
	checkTimeout = 4 * time.Second
	// listBytes is how much of a list of models is read, listShown how many of its names are shown.
	listBytes = 4 << 20
	listShown = 8
)

// Server is a provider with one of its keys, as upstreams use it.
type Server struct {
	// Provider is LocalProvider for the local simulator. KeySetting is empty where no key is configured.
	Provider, KeySetting string
}

// usedServer is a Server with the upstreams that use it.
type usedServer struct {
	Server
	upstreams []served
}

// served is an upstream of a model that this process can call.
type served struct {
	Upstream
	endpoint
}

// shown names the upstream as its model, and itself where its name says more.
func (u served) shown() string {
	if u.Name == u.Provider {
		return u.model
	}
	return fmt.Sprintf("%s (upstream %s)", u.model, u.Name)
}

// servers returns the servers that calls are sent to, sorted, with their upstreams.
func (c *Catalog) servers() (all []usedServer) {
	for _, m := range c.Models() {
		for _, u := range m.Upstreams {
			ep, err := c.endpointOf(m, u)
			if err != nil {
				continue
			}
			at := Server{ep.servedBy, c.keySetting(u)}
			if ep.servedBy == LocalProvider {
				at.KeySetting = ""
			}
			i := slices.IndexFunc(all, func(s usedServer) bool { return s.Server == at })
			if i < 0 {
				i, all = len(all), append(all, usedServer{Server: at})
			}
			all[i].upstreams = append(all[i].upstreams, served{u, ep})
		}
	}
	slices.SortFunc(all, func(a, b usedServer) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.KeySetting, b.KeySetting))
	})
	return all
}

// modelsOf returns the names of the models of upstreams, each once.
func modelsOf(upstreams []served) (names []string) {
	for _, u := range upstreams {
		if !slices.Contains(names, u.model) {
			names = append(names, u.model)
		}
	}
	return names
}

// Servers returns the servers that calls are sent to, sorted.
func (c *Catalog) Servers() (all []Server) {
	for _, s := range c.servers() {
		all = append(all, s.Server)
	}
	return all
}

// Check finds out whether a server accepts address, key and models of its calls. It reads the list of models, which not every server has, and
// sends calls without messages: a server refuses them after it has checked the key, and there is nothing to answer.
func (c *Client) Check(ctx context.Context, at Server) Check {
	all := c.catalog("").servers()
	i := slices.IndexFunc(all, func(s usedServer) bool { return s.Server == at })
	out := Check{Provider: at.Provider}
	if i < 0 {
		return out
	}
	upstreams := all[i].upstreams
	ep := upstreams[0].endpoint
	out.BaseURL = ep.baseURL
	if ep.key != "" {
		out.KeySetting = ep.keySetting
	}
	listed, listErr := c.list(ctx, ep)
	out.Listed = listErr == nil
	// A model that is listed shows whether the key is accepted; then only the others have to be tried.
	slices.SortStableFunc(upstreams, func(a, b served) int { return cmp.Compare(knows(listed, b.modelID), knows(listed, a.modelID)) })
	has := "; its list of models has " + shorten(printable(some(listed)), maxShown)
	var lost []CheckFault // of models that the provider does not know, or of an address where there is no provider
	for _, u := range upstreams {
		listed := knows(listed, u.modelID) == 1
		if listed && len(out.Accepted) > 0 {
			out.accept(u)
			continue
		}
		failed := c.try(ctx, u.endpoint)
		switch v := verdictOf(failed); {
		case v == accepts && (listed || !out.Listed):
			out.accept(u)
		case v == accepts:
			out.Faults = append(out.Faults, CheckFault{
				Said: fmt.Sprintf("no %q%s", u.modelID, has), Advice: "correct " + idSetting(u) + ", unless the provider serves models that it does not list",
			})
		case v == unknown:
			out.Faults = append(out.Faults, CheckFault{Said: failed.words(), Advice: "not checked: run berth doctor again later"})
			return out
		case failed.Cause != CauseModel:
			out.Faults = append(out.Faults, CheckFault{true, failed.words(), advise(u, failed), modelsOf(upstreams)})
			return out
		case out.Listed:
			out.Faults = append(out.Faults, CheckFault{true, failed.words() + has, "correct " + idSetting(u), []string{u.model}})
		default:
			lost = append(lost, CheckFault{true, failed.words(), "correct " + idSetting(u), []string{u.model}})
		}
	}
	switch {
	case len(lost) > 0 && len(out.Accepted) == 0:
		lost = []CheckFault{{true, lost[0].Said, "correct " + addressOf(upstreams[0]) + ", or " + strings.TrimPrefix(lost[0].Advice, "correct "), modelsOf(upstreams)}}
	case listErr != nil && (listErr.Cause == CauseKey || listErr.Cause == CausePermission):
		lost = append(lost, CheckFault{Said: "its list of models is refused: " + listErr.words(), Advice: advise(upstreams[0], listErr)})
	}
	out.Faults = append(out.Faults, lost...)
	return out
}

// accept records that the calls of an upstream are accepted.
func (c *Check) accept(u served) {
	c.Accepted, c.Models = append(c.Accepted, u.shown()), append(c.Models, u.model)
}

// knows returns 1 if a list has a model, 0 otherwise. Lists have names with a prefix or a tag that calls need not have.
func knows(listed []string, id string) int {
	for _, name := range listed {
		if strings.EqualFold(name, id) || strings.EqualFold(name, "models/"+id) || strings.EqualFold(name, id+":latest") {
			return 1
		}
	}
	return 0
}

// some returns the first names of a list.
func some(listed []string) string {
	text := strings.Join(listed[:min(len(listed), listShown)], ", ")
	if len(listed) > listShown {
		text += fmt.Sprintf(" and %d others", len(listed)-listShown)
	}
	return text
}

// verdict is what an error of a call without messages shows about the calls of tasks.
type verdict int

const (
	accepts verdict = iota
	refuses
	unknown // now
)

func verdictOf(failed *CallError) verdict {
	switch {
	case failed == nil:
		return accepts
	case failed.Cause == CauseTimeout && failed.Status == 0 && notConnected(failed.Err):
		return refuses
	case failed.Cause == CauseBadRequest && bytes.HasPrefix(bytes.TrimSpace(failed.said), []byte("<")): // a page
		return refuses
	case failed.Cause == CauseBadRequest && len(failed.said) > 0 && !gjson.ValidBytes(failed.said):
		return unknown
	}
	switch failed.Cause {
	case CauseKey, CausePermission, CauseRegion, CauseBlocked, CauseCredit, CauseModel, CauseAddress, CauseConnection:
		return refuses
	case CauseLimit, CauseOverload, CauseTimeout, CauseServer, CauseUnreadable, CauseMalformed, CauseUnknown:
		return unknown
	default: // the request is incomplete, or was answered
		return accepts
	}
}

// notConnected reports whether there was no connection in time. A server that only responds later may load a model: a call waits longer.
func notConnected(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// try makes a call without messages.
func (c *Client) try(ctx context.Context, ep endpoint) *CallError {
	s := &session{endpoint: ep, limits: c.limits, on: func(Delta) error { return nil }, begun: time.Now(), http: c.http, learned: &learned{}}
	call := Call{Model: ep.model, Timeouts: Timeouts{FirstByte: checkTimeout, Idle: checkTimeout}}
	// A server that answers nevertheless is bounded to one token.
	var err error
	if call.body, err = json.Marshal(map[string]any{"model": ep.modelID, ep.maxTokensField: 1}); err == nil {
		err = s.exchange(ctx, call)
	}
	var failed *CallError
	if err != nil && !errors.As(err, &failed) {
		failed = ep.transportError(err)
	}
	return failed
}

// list reads the provider's list of models. A list that is known to be incomplete is none.
func (c *Client) list(ctx context.Context, ep endpoint) ([]string, *CallError) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errFirstByte)
	defer cancel()
	req, err := ep.request(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return nil, ep.transportError(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req) //nolint:bodyclose // closed below
	if err != nil {
		return nil, ep.transportError(err)
	}
	body := newUnzipped(resp.Body)
	defer func() { _ = body.Close() }() // a part is enough
	if resp.StatusCode != http.StatusOK {
		words, _ := io.ReadAll(io.LimitReader(body, errorBodyBytes))
		return nil, ep.statusError(resp, words, time.Now())
	}
	text, err := io.ReadAll(io.LimitReader(body, listBytes))
	if err != nil {
		return nil, ep.transportError(err)
	}
	doc := gjson.ParseBytes(text)
	if reported, ok := errorIn(doc); ok && gjson.ValidBytes(text) {
		return nil, ep.answerError(reported, text)
	}
	var names []string
	for _, place := range []string{"data", "models", "@this"} {
		for _, m := range doc.Get(place).Array() {
			if id := m.Get("id"); id.Type == gjson.String {
				names = append(names, id.Str)
			}
		}
		if len(names) > 0 {
			break
		}
	}
	if len(names) == 0 || !gjson.ValidBytes(text) || doc.Get("has_more").Bool() {
		return nil, ep.failure(CauseAddress, resp.StatusCode, "no list of models", errors.New(ep.quote(text)))
	}
	return names, nil
}

// words returns the reason of a provider, or that of the connection, without the address of the call.
func (e *CallError) words() string {
	if e.reason != "" {
		return e.reason
	}
	err := e.Err
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = call.Err
	}
	if err == nil {
		return e.Message
	}
	return err.Error()
}

// addressOf names the setting of an address, and its value.
func addressOf(u served) string {
	if u.servedBy == LocalProvider {
		return "BERTH_LOCAL_MODEL_URL, which is " + u.baseURL
	}
	return "baseURL of providers." + u.Provider + " in the routing file (BERTH_ROUTING_FILE), which is " + u.baseURL
}

func idSetting(u served) string {
	of := "models." + u.model
	if u.Name != u.Provider {
		of = "upstream " + u.Name + " of " + of
	}
	return "id of " + of + " in the routing file (BERTH_ROUTING_FILE)"
}

// advise returns what to change after a call that was refused.
func advise(u served, failed *CallError) string {
	key := cmp.Or(u.endpoint.keySetting, "keySetting of providers."+u.Provider+" in the routing file (BERTH_ROUTING_FILE)")
	switch failed.Cause {
	case CauseKey:
		if u.key == "" {
			return "set " + key
		}
		return "correct " + key
	case CausePermission:
		return "check the rights of " + key
	case CauseCredit:
		return "add credit to the account of " + key
	case CauseRegion:
		return "use another provider: change the routing file (BERTH_ROUTING_FILE)"
	case CauseBlocked:
		return "check the network and its proxy, or correct " + addressOf(u)
	case CauseConnection, CauseTimeout:
		return "correct " + addressOf(u) + unreached(failed.Err)
	default:
		return "correct " + addressOf(u)
	}
}

// unreached adds what else may be wrong if a server cannot be reached.
func unreached(err error) string {
	var untrusted *tls.CertificateVerificationError
	var name *net.DNSError
	switch {
	case errors.As(err, &untrusted):
		return ", or add the authority of the certificate to those of the system or to SSL_CERT_FILE"
	case err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"), err != nil && strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return ": the server uses no TLS at this port"
	case errors.As(err, &name):
		return ": its host is not found"
	default:
		return ", or let this host reach it (network, HTTPS_PROXY)"
	}
}
