package llm

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/eventstream"
)

// CallError is a failed model call. It wraps a *berth.Error, so that berth.CodeOf works on it. Message may be shown to users: it has no
// keys, and of the provider's own text at most its reason, shortened.
type CallError struct {
	Code  berth.Code
	Cause Cause // empty for a call that could not be made
	Scope Scope
	// Retryable: another call may succeed. If Unusable, the model has answered, and the answer cannot be used.
	Retryable, Unusable bool
	// RetryAfter is the pause that the provider requested, 0 without one, at most maxRetryAfter.
	RetryAfter time.Duration
	// Until is the time until which the provider wants no calls, also if that is later than RetryAfter; zero if it did not say.
	Until time.Time
	// Status is the provider's HTTP status, 0 without a response.
	Status             int
	Provider, Upstream string
	Model              string
	Message            string
	// Said is the provider's own error, for clients that speak its protocol; empty unless it concerns their request.
	Said ProviderError
	// Err is the cause, for the log.
	Err error

	said   []byte // by the provider
	reason string // its own, shortened; empty if it gave none
}

// ProviderError is an error as a provider has written it, without keys. Fields that it does not have are empty.
type ProviderError struct {
	Message, Type, Param, Code string
}

func (e *CallError) Error() string { return e.shown().Error() }

func (e *CallError) Unwrap() error { return e.shown() }

// Before returns the error for a caller with a deadline: it is final if the provider wants no calls until then.
func (e *CallError) Before(deadline time.Time) *CallError {
	if !e.Retryable || !e.Until.After(deadline) {
		return e
	}
	late := *e
	late.Retryable, late.Message = false, fmt.Sprintf("%s asks this server to wait until %s, which is later than the deadline: retry later",
		e.Provider, e.Until.UTC().Format("2006-01-02 15:04:05 UTC"))
	return &late
}

func (e *CallError) shown() *berth.Error {
	return &berth.Error{Code: e.Code, Message: e.Message, Err: e.Err}
}

// Reasons for which berth ends a call.
var (
	errFirstByte  = errors.New("no response in time")
	errIdle       = errors.New("the answer stopped before its end")
	errTooLong    = errors.New("the answer exceeds the size limit")
	errTooMuch    = errors.New("more data than an answer has")
	errUnreadable = errors.New("the answer has an event that is not valid JSON")
	errNothing    = fmt.Errorf("the response is empty: %w", io.ErrUnexpectedEOF)
	errCut        = fmt.Errorf("the stream ended without a finish reason: %w", io.ErrUnexpectedEOF)
)

const (
	// maxRetryAfter is the longest pause of a model. A provider that requests more rejects the next call, too.
	maxRetryAfter = time.Minute
	// maxAsked bounds the time that a provider may ask for: what is longer than any deadline makes no difference.
	maxAsked = 365 * 24 * time.Hour
)

// failure returns the error for a cause. reason may be shown to users; err is for the log.
func (ep endpoint) failure(cause Cause, status int, reason string, err error) *CallError {
	r, own := ruleOf(cause), reason
	if err == nil && reason != "" {
		err = errors.New(reason)
	}
	if reason != "" {
		reason = " (" + reason + ")"
	}
	says := r.says
	if cause == CauseKey || cause == CausePermission {
		says = ep.sayKey(says)
	}
	return &CallError{
		Code: r.code, Cause: cause, Scope: r.scope, Retryable: r.decision != Fail, Unusable: r.decision == Another, Status: status, Provider: ep.servedBy,
		Message: strings.NewReplacer("{}", ep.servedBy, "{reason}", reason).Replace(says), Err: err, reason: own,
	}
}

// sayKey completes a sentence about the key.
func (ep endpoint) sayKey(says string) string {
	var key, setting string
	switch {
	case ep.keySetting == "":
		setting = "its API key"
		key = "{} requires an API key, and none is configured: the operator has to set keySetting in the routing file"
	case ep.key == "":
		key, setting = "{} requires an API key: the operator has to set "+ep.keySetting, ep.keySetting
	default:
		key, setting = "{} rejected the API key of this server: the operator has to check "+ep.keySetting, ep.keySetting
	}
	if says == "{key}" {
		return key
	}
	return strings.ReplaceAll(says, "{key}", setting)
}

// reportedError is an error as a provider reports it.
type reportedError struct {
	codes   []string // code, type, status
	message string
	own     ProviderError // its parts by their names
	wait    time.Duration // until which the provider wants no calls, 0 if it does not say
}

// errorIn returns the error that a document of a provider reports, and whether it is certain that it reports one. Only an object with something in it, or a text, is an error:
// some servers send an empty error, or false, with each chunk.
func errorIn(doc gjson.Result) (reportedError, bool) {
	if doc.IsArray() { // Google
		doc = doc.Get("0")
	}
	e, ok := findError(doc)
	if ok || e.message != "" {
		e.wait = waitIn(doc, e.message)
	}
	return e, ok
}

func findError(doc gjson.Result) (reportedError, bool) {
	switch e := doc.Get("error"); {
	case !holds(e):
	case e.IsObject():
		return errorOf(e), true
	case e.Type == gjson.String:
		r := errorOf(doc)
		if r.message != e.Str {
			r.message = strings.TrimSpace(e.Str + " " + r.message)
		}
		return r, true
	}
	if len(doc.Get("choices").Array()) > 0 {
		return reportedError{}, false
	}
	if base := doc.Get("base_resp"); base.Get("status_code").Int() != 0 { // MiniMax
		return reportedError{codes: []string{"base_resp " + base.Get("status_code").String()}, message: base.Get("status_msg").String()}, true
	}
	for _, place := range []string{"errors.0", "detail", "Response.Error"} { // Cloudflare, FastAPI, Tencent
		if e := doc.Get(place); holds(e) {
			return errorOf(e), true
		}
	}
	e := errorOf(doc)
	if success := doc.Get("success"); success.Type == gjson.False && e.message != "" {
		return e, true
	}
	succeeded := slices.ContainsFunc(e.names(), func(name string) bool { return slices.Contains([]string{"200", "ok", "success"}, name) })
	if e.message != "" && !succeeded && (len(e.codes) > 0 || doc.Get("object").String() == "error") { // vLLM, DashScope, Baidu
		return e, true
	}
	return e, false
}

func errorOf(e gjson.Result) (r reportedError) {
	if e.Type == gjson.String {
		return reportedError{message: e.Str}
	}
	if e.IsArray() {
		first := errorOf(e.Get("0"))
		return reportedError{codes: first.codes, message: e.Raw, own: first.own}
	}
	for _, name := range []string{"code", "type", "status", "error_code", "__type", "Code"} {
		if v := e.Get(name); holds(v) && (v.Type == gjson.String || v.Type == gjson.Number) {
			r.codes = append(r.codes, v.String())
		}
	}
	for _, name := range []string{"message", "msg", "error_msg", "detail", "Message", "error_message", "errorMessage", "error_description"} {
		if v := e.Get(name); r.message == "" && holds(v) {
			r.message = v.String()
		}
	}
	if inner := e.Get("metadata.raw"); inner.Type == gjson.String { // OpenRouter: that of the provider behind it
		r.message = strings.TrimSpace(r.message + " " + inner.Str)
	}
	r.own = ProviderError{Type: nameIn(e.Get("type")), Param: nameIn(e.Get("param")), Code: nameIn(e.Get("code"))}
	if r.own.Type == eventError { // it names the event
		r.own.Type = ""
	}
	if place := e.Get("loc"); r.own.Param == "" && place.IsArray() { // FastAPI
		var path []string
		for _, key := range place.Array() {
			if key.String() != "body" {
				path = append(path, key.String())
			}
		}
		r.own.Param = strings.Join(path, ".")
	}
	return r
}

// nameIn returns a text or a number of an error, "" for anything else.
func nameIn(v gjson.Result) string {
	if v.Type != gjson.String && v.Type != gjson.Number {
		return ""
	}
	return v.String()
}

// holds reports whether a value contains anything: a text, a number other than 0, or an object or list with such a value.
func holds(v gjson.Result) (found bool) {
	switch {
	case v.IsObject() || v.IsArray():
		v.ForEach(func(_, inner gjson.Result) bool {
			found = holds(inner)
			return !found
		})
		return found
	case v.Type == gjson.String:
		return strings.TrimSpace(v.Str) != ""
	default:
		return v.Type == gjson.True || v.Num != 0
	}
}

// maxName is the length of a message that may be a name.
const maxName = 40

// names returns the error's codes and types as the rules have them, and a message that may be one.
func (e reportedError) names() (all []string) {
	codes := e.codes
	if len(e.message) <= maxName && strings.ContainsFunc(e.message, unicode.IsLetter) { // such as Unauthorized
		codes = append(slices.Clip(codes), e.message)
	}
	for _, code := range codes {
		all = append(all, strings.Map(func(r rune) rune {
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				return -1
			}
			return unicode.ToLower(r)
		}, code))
	}
	return all
}

// status returns the HTTP status that is one of the codes, 200 if none is.
func (e reportedError) status() int {
	for _, code := range e.codes {
		if n, err := strconv.Atoi(strings.TrimSpace(code)); err == nil && n >= http.StatusBadRequest && n < 600 {
			return n
		}
	}
	return http.StatusOK
}

// pageTitle finds the title of an HTML page.
var pageTitle = regexp.MustCompile(`(?is)<title[^>]*>\s*(\S.*?)</title>`)

// Unusable returns the error for an answer that the caller cannot use.
func (c *Client) Unusable(model, upstream string, cause Cause, reason string, err error) *CallError {
	if cause == CauseFormat && reason == "" {
		reason = mismatchReason(err)
	}
	failed := endpoint{servedBy: c.catalog(model).ServedBy(model, upstream)}.failure(cause, http.StatusOK, reason, err)
	failed.Model, failed.Upstream = model, upstream
	return failed
}

// statusError returns the error for an HTTP status other than 200. body is the beginning of the response.
func (ep endpoint) statusError(resp *http.Response, body []byte, now time.Time) *CallError {
	var reported reportedError
	if gjson.ValidBytes(body) {
		reported, _ = errorIn(gjson.ParseBytes(body))
	} else if text := strings.TrimSpace(string(body)); !strings.HasPrefix(text, "<") {
		reported.message, reported.wait = text, waitIn(gjson.Result{}, text)
	}
	if asked := RetryAfter(resp.Header, now); asked > 0 {
		reported.wait = asked
	}
	cause := causeOf(resp.StatusCode, reported)
	said := ep.said(cause, reported)
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) { // a page, which is not the provider's but a proxy's
		if reported.message = "a page"; cause == CausePermission {
			cause = CauseBlocked
		}
		if title := pageTitle.FindSubmatch(body); title != nil {
			reported.message = html.UnescapeString(string(title[1]))
		}
	}
	e := ep.failure(cause, resp.StatusCode, ep.shown(fmt.Sprintf("status %d", resp.StatusCode), reported.message), errors.New(ep.quote(body)))
	e.said, e.Said = body, said
	return e.after(reported.wait, now)
}

// Refusals of the bound of an answer, and of one that exceeds the context alone.
var (
	refusedBound = regexp.MustCompile(`(?i)max_(completion_|output_)?tokens`)
	largeBound   = regexp.MustCompile(`(?i)max_(completion_|output_)?tokens\W* is too large`)
)

// ofAssumedBound states whose task it is if the provider refuses the bound of an answer that berth has assumed.
func (e *CallError) ofAssumedBound(tokens int) {
	said := e.Said.Message
	if e.Cause != CauseBadRequest && (e.Cause != CauseContext || !largeBound.MatchString(said)) || !refusedBound.MatchString(said) {
		return
	}
	e.Message = fmt.Sprintf("%s refused the bound of an answer, %d tokens (%s): the operator has to set maxOutputTokens of the model in the routing file",
		e.Provider, tokens, shorten(said, maxShown))
	e.Said.Message = e.Message + "; a request with a smaller max_completion_tokens may succeed"
}

// after adds the pause that the provider asks for.
func (e *CallError) after(asked time.Duration, now time.Time) *CallError {
	if e.Retryable && asked > 0 {
		e.RetryAfter, e.Until = min(asked, maxRetryAfter), now.Add(asked)
	}
	return e
}

// answerError returns the error for an error within a response with status 200.
func (ep endpoint) answerError(reported reportedError, data []byte) *CallError {
	e := ep.failure(causeOf(http.StatusOK, reported), http.StatusOK, ep.shown("", reported.message), errors.New(ep.quote(data)))
	e.Said = ep.said(e.Cause, reported)
	return e.after(reported.wait, time.Now())
}

// maxSaid bounds each part of a provider's own error, in bytes.
const maxSaid = 2000

// said returns the provider's own error if it concerns the request. It may be long, because it names what is wrong in it; of what may be a
// secret only keys are hidden.
func (ep endpoint) said(cause Cause, reported reportedError) ProviderError {
	switch cause {
	case CauseBadRequest, CauseContext, CauseRefused, CauseTooLarge:
	default:
		return ProviderError{}
	}
	text := func(s string) string {
		if len(ep.key) >= minKey {
			s = encodings(ep.key).ReplaceAllString(s, "[…]")
		}
		return shorten(keyTexts.ReplaceAllString(printable(s), "[…]"), maxSaid)
	}
	own := reported.own
	return ProviderError{Message: text(reported.message), Type: text(own.Type), Param: text(own.Param), Code: text(own.Code)}
}

// keyTexts are texts that are keys or passwords, whatever is around them.
var keyTexts = regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S{8,}|//[^\s/@]*@|\b(sk|pk|rk)[-_][\w.*-]{8,}`)

// transportError returns the error for a call that failed without a response or in the middle of one.
func (ep endpoint) transportError(err error) *CallError {
	cause, reason := CauseConnection, ""
	switch {
	case errors.Is(err, errFirstByte), errors.Is(err, errIdle):
		cause = CauseTimeout
	case errors.Is(err, errNothing):
		reason = "status 200 with an empty response"
	case errors.Is(err, errUnreadable):
		cause = CauseUnreadable
	case errors.Is(err, errTooLong):
		cause, reason = CauseEndless, errTooLong.Error()
	case errors.Is(err, errTooMuch), errors.Is(err, eventstream.ErrLongLine), errors.Is(err, eventstream.ErrLongEvent): // whatever the texts are
		cause, reason = CauseMalformed, errTooMuch.Error()
	}
	return ep.failure(cause, 0, reason, ep.scrub(err))
}

// quote returns text of a provider for the log: short, on one line, without anything that may be a secret.
func (ep endpoint) quote(b []byte) string {
	s := shorten(ep.masked(string(b)), 300)
	if s == "" {
		return "(empty response)"
	}
	return s
}

// maxShown bounds the text of a provider that users read, in bytes.
const maxShown = 200

// secrets are texts of a provider that may be one: keys, tokens, and passwords in addresses.
var secrets = regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S+|//[^\s/@]*@|\b(sk|pk|rk|key|token)[-_][\w.*-]{4,}|[\w+/=*.-]{24,}`)

// shown returns the reason of a provider for users: short, on one line, without anything that may be a secret.
func (ep endpoint) shown(status, reason string) string {
	reason = shorten(ep.masked(reason), maxShown)
	return strings.Join(slices.DeleteFunc([]string{status, reason}, func(s string) bool { return s == "" }), ": ")
}

// minKey is the length of the shortest key that is hidden. A shorter one is a word that a server ignores, such as "ollama" or "EMPTY": to hide it
// would take parts out of addresses and reasons.
const minKey = 8

// masked returns a text of a provider on one line, without anything that may be a secret.
func (ep endpoint) masked(s string) string {
	if len(ep.key) >= minKey {
		s = encodings(ep.key).ReplaceAllString(s, "[…]")
	}
	return secrets.ReplaceAllStringFunc(printable(s), func(found string) string {
		if codeName.MatchString(found) {
			return found
		}
		return "[…]"
	})
}

// codeCharacter is a character that no encoding changes.
var codeCharacter = regexp.MustCompile(`^[0-9A-Za-z]$`)

// encodings matches a key as it is, and as addresses, JSON and HTML encode it.
func encodings(key string) *regexp.Regexp {
	var b strings.Builder
	for _, c := range key {
		one := string(c)
		if codeCharacter.MatchString(one) {
			b.WriteString(one)
			continue
		}
		address := ""
		for _, octet := range []byte(one) {
			address += fmt.Sprintf("%%%02x", octet)
		}
		fmt.Fprintf(&b, `(?:\\?%s|%s|(?i:%s|\\u%04x|\\x%02x|&#x0*%x;|&#0*%d;))`,
			regexp.QuoteMeta(one), regexp.QuoteMeta(html.EscapeString(one)), address, c, c, c, c)
	}
	return regexp.MustCompile(b.String())
}

// codeName is a long name of an error, which is shown.
var codeName = regexp.MustCompile(`^[a-z]+(_[a-z]+){2,}$`)

// printable returns a text on one line, without control characters.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(s), " ")
}

func (ep endpoint) scrub(err error) error {
	if len(ep.key) >= minKey && encodings(ep.key).MatchString(err.Error()) {
		return errors.New(ep.quote([]byte(err.Error())))
	}
	return err
}

// RetryAfter parses Retry-After, in seconds or as a date, and the Retry-After-Ms of some providers. It returns 0 without one, and a year
// at most.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return boundRetryAfter(ms / 1000)
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return boundRetryAfter(s)
	}
	if at, err := http.ParseTime(v); err == nil {
		return boundRetryAfter(at.Sub(now).Seconds())
	}
	return 0
}

func boundRetryAfter(seconds float64) time.Duration {
	switch {
	case seconds > maxAsked.Seconds():
		return maxAsked
	case seconds > 0:
		return time.Duration(seconds * float64(time.Second))
	default: // past, zero, or not a number
		return 0
	}
}
