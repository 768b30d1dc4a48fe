package llm

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"berth"
)

// CallError is a failed model call. It wraps a *berth.Error, so that berth.CodeOf works on it. Message may be shown to
// users and contains neither keys nor text of the provider.
type CallError struct {
	Code      berth.Code
	Retryable bool
	// Unusable: the model answered, and the answer cannot be used. Another answer may be usable; it costs as much again.
	Unusable bool
	// RetryAfter is the pause that the provider requested, 0 without one.
	RetryAfter time.Duration
	// Status is the provider's HTTP status, 0 without a response.
	Status   int
	Provider string
	Model    string
	Message  string
	// Err is the cause, for the log.
	Err error
}

func (e *CallError) Error() string { return e.shown().Error() }

func (e *CallError) Unwrap() error { return e.shown() }

// Limited reports whether the provider rejected the call because of too many others.
func (e *CallError) Limited() bool { return e.Retryable && e.Status == http.StatusTooManyRequests }

func (e *CallError) shown() *berth.Error {
	return &berth.Error{Code: e.Code, Message: e.Message, Err: e.Err}
}

// Reasons for which berth ends a call.
var (
	errFirstByte  = errors.New("no response in time")
	errIdle       = errors.New("the answer stopped before its end")
	errTooLong    = errors.New("the answer exceeds the size limit")
	errLongLine   = errors.New("a line of the answer exceeds the size limit")
	errUnreadable = errors.New("the answer has an event that is not valid JSON")
)

// maxRetryAfter is the longest Retry-After that is respected. A provider that requests more rejects the next call, too.
const maxRetryAfter = time.Minute

// statusError returns the error for an HTTP status other than 200. body is the beginning of the response.
func (ep endpoint) statusError(resp *http.Response, body []byte, now time.Time) *CallError {
	e := &CallError{
		Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header, now), Provider: ep.servedBy,
		Code: berth.CodeProviderRejected, Err: errors.New(ep.quote(body)),
	}
	detail := gjson.GetBytes(body, "error")
	code := detail.Get("code").String() + " " + detail.Get("type").String()
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		e.Code = berth.CodeProviderKey
		e.Message = ep.keyMessage()
	case s == http.StatusPaymentRequired || (s == http.StatusTooManyRequests && outOfCredit(code)):
		e.RetryAfter = 0
		e.Message = fmt.Sprintf("the account at %s has no credit", ep.servedBy)
	case s == http.StatusTooManyRequests:
		e.Code, e.Retryable = berth.CodeProviderUnavailable, true
		e.Message = fmt.Sprintf("%s rejected the call: too many requests", ep.servedBy)
	case s >= 500 || s == http.StatusRequestTimeout || s == http.StatusTooEarly:
		e.Code, e.Retryable = berth.CodeProviderUnavailable, true
		e.Message = fmt.Sprintf("%s failed with status %d", ep.servedBy, s)
	default:
		e.RetryAfter = 0
		e.Message = fmt.Sprintf("%s rejected the request with status %d", ep.servedBy, s)
	}
	return e
}

func (ep endpoint) keyMessage() string {
	switch {
	case ep.keySetting == "":
		return fmt.Sprintf("%s requires an API key, but none is configured", ep.servedBy)
	case ep.key == "":
		return fmt.Sprintf("%s requires an API key: set %s", ep.servedBy, ep.keySetting)
	default:
		return fmt.Sprintf("%s rejected the API key: check %s", ep.servedBy, ep.keySetting)
	}
}

// outOfCredit reports whether a 429 is permanent: insufficient_quota of OpenAI, 1113 of Zhipu.
func outOfCredit(code string) bool {
	return strings.Contains(code, "insufficient_quota") || strings.HasPrefix(code, "1113 ")
}

// streamError returns the error for an error object inside a stream with status 200.
func (ep endpoint) streamError(data []byte) *CallError {
	detail := gjson.GetBytes(data, "error")
	code := strings.ToLower(detail.Get("code").String() + " " + detail.Get("type").String())
	e := &CallError{
		Status: http.StatusOK, Provider: ep.servedBy, Code: berth.CodeProviderUnavailable, Retryable: true,
		Message: fmt.Sprintf("%s ended the answer with an error", ep.servedBy), Err: errors.New(ep.quote(data)),
	}
	if strings.Contains(code, "invalid_request") || strings.HasPrefix(code, "400 ") || outOfCredit(code) {
		e.Code, e.Retryable = berth.CodeProviderRejected, false
		e.Message = fmt.Sprintf("%s rejected the request", ep.servedBy)
	}
	return e
}

// transportError returns the error for a call that failed without a response or in the middle of one.
func (ep endpoint) transportError(err error) *CallError {
	e := &CallError{Provider: ep.servedBy, Code: berth.CodeProviderUnavailable, Retryable: true, Err: ep.scrub(err)}
	switch {
	case errors.Is(err, errFirstByte), errors.Is(err, errIdle), errors.Is(err, errUnreadable):
		e.Message = fmt.Sprintf("%s: %s", ep.servedBy, shownReason(err))
	case errors.Is(err, errTooLong), errors.Is(err, errLongLine):
		e.Code, e.Retryable = berth.CodeInvalidOutput, false
		e.Message = fmt.Sprintf("answer of %s was ended: %s", ep.servedBy, shownReason(err))
	default:
		e.Message = fmt.Sprintf("%s is unreachable or closed the connection", ep.servedBy)
	}
	return e
}

func shownReason(err error) string {
	for _, known := range []error{errFirstByte, errIdle, errTooLong, errLongLine, errUnreadable} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "call failed"
}

// quote returns text of a provider for the log: short, on one line, without the key.
func (ep endpoint) quote(b []byte) string {
	s := strings.ToValidUTF8(string(b), "")
	if ep.key != "" {
		s = strings.ReplaceAll(s, ep.key, "[key]")
	}
	s = shorten(strings.Join(strings.Fields(s), " "), 300)
	if s == "" {
		return "(empty response)"
	}
	return s
}

func (ep endpoint) scrub(err error) error {
	if ep.key != "" && strings.Contains(err.Error(), ep.key) {
		return errors.New(ep.quote([]byte(err.Error())))
	}
	return err
}

// retryAfter parses Retry-After, in seconds or as a date, and the Retry-After-Ms of some providers.
func retryAfter(h http.Header, now time.Time) time.Duration {
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
	case seconds > maxRetryAfter.Seconds():
		return maxRetryAfter
	case seconds > 0:
		return time.Duration(seconds * float64(time.Second))
	default: // past, zero, or not a number
		return 0
	}
}
