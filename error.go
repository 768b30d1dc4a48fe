package berth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Code is a stable, machine-readable name of an error. Clients may switch on it.
type Code string

// The codes of the HTTP API, of results and of terminal events. Each has a row in the table codes.
const (
	CodeInvalid             Code = "invalid"
	CodeUnauthenticated     Code = "unauthenticated"
	CodeForbidden           Code = "forbidden"
	CodeNotFound            Code = "not_found"
	CodeConflict            Code = "conflict"
	CodeIdempotencyMismatch Code = "idempotency_mismatch"
	CodeTooLarge            Code = "too_large"
	CodeUnsupportedMedia    Code = "unsupported_media"
	CodeRateLimited         Code = "rate_limited"
	CodeQueueFull           Code = "queue_full"
	CodeBudgetExceeded      Code = "budget_exceeded"
	CodeUnavailable         Code = "unavailable"
	CodeInternal            Code = "internal"
	CodeDeadlineExceeded    Code = "deadline_exceeded"
	CodeCancelled           Code = "cancelled"
	CodeProviderKey         Code = "provider_key"
	CodeProviderRejected    Code = "provider_rejected"
	CodeProviderUnavailable Code = "provider_unavailable"
	CodeInvalidOutput       Code = "invalid_output"
	CodeNodeFull            Code = "node_full"
	CodeNoNode              Code = "no_node"
	CodeNoLicence           Code = "no_licence"
	CodeNodeFailed          Code = "node_failed"
	CodeTurnFinalized       Code = "turn_finalized"
	CodeUnitRefused         Code = "unit_refused"
	CodeEnded               Code = "ended"
	CodeLinkUsed            Code = "link_used"
	CodeLinkRevoked         Code = "link_revoked"
	CodeRemoved             Code = "removed"
	CodeUnreadableImage     Code = "unreadable_image"
	CodeInterrupted         Code = "interrupted"
	CodeNotStarted          Code = "not_started"
	CodeNotServed           Code = "not_served"
	CodeErased              Code = "erased"
	CodeLost                Code = "lost"
)

// CodeInfo is everything that the API, its description and its clients derive from a code.
type CodeInfo struct {
	Code   Code
	Status int // HTTP status; 0 for a code of results and terminal events only
	// RetryAfter is how long a client should wait before it retries when the error does not state a time; 0 means that a
	// retry of the same request fails again.
	RetryAfter time.Duration
	Level      slog.Level // of the log line of a request that fails with the code
	// Description is for the API's description. Messages are written where the errors are made; those of a Refusal in
	// refusal.go.
	Description string
}

const debug = slog.LevelDebug

// codes has one row per code. A new code needs a constant above and a row here.
var codes = []CodeInfo{
	{CodeInvalid, http.StatusBadRequest, 0, debug, "a field of the request is invalid; `field` names it"},
	{CodeUnauthenticated, http.StatusUnauthorized, 0, debug, "no token, or an invalid one"},
	{CodeForbidden, http.StatusForbidden, 0, debug, "the token lacks the scope"},
	{CodeNotFound, http.StatusNotFound, 0, debug, "not found, or owned by another user"},
	{CodeConflict, http.StatusConflict, 0, debug, "the current state forbids the request"},
	{CodeIdempotencyMismatch, http.StatusUnprocessableEntity, 0, debug, "the id or key was used for another request"},
	{CodeTooLarge, http.StatusRequestEntityTooLarge, 0, debug, "the body or a field exceeds its limit"},
	{CodeUnsupportedMedia, http.StatusUnsupportedMediaType, 0, debug, "the media type is not supported"},
	{CodeRateLimited, http.StatusTooManyRequests, time.Second, debug, "too many requests of this user"},
	{CodeQueueFull, http.StatusTooManyRequests, time.Second, debug, "the queue has reached its limit"},
	{CodeBudgetExceeded, http.StatusTooManyRequests, 0, debug, "what the call may cost is more than the budget of its key or team, or the account of its user, has left"},
	{CodeUnavailable, http.StatusServiceUnavailable, 2 * time.Second, slog.LevelWarn, "Redis, Temporal or the database is unavailable"},
	{CodeInternal, http.StatusInternalServerError, 0, slog.LevelError, "internal error; see the server log for this request id"},
	{CodeDeadlineExceeded, 0, 0, debug, "the work exceeded its deadline"},
	{CodeCancelled, http.StatusConflict, 0, debug, "the work was cancelled"},
	{CodeProviderKey, 0, 0, debug, "the model provider rejected the server's key"},
	{CodeProviderRejected, 0, 0, debug, "the model provider rejected the request"},
	{CodeProviderUnavailable, 0, 0, debug, "the model provider could not be reached or kept failing"},
	{CodeInvalidOutput, 0, 0, debug, "the model output does not match the schema, even after a repair"},
	{CodeNodeFull, http.StatusServiceUnavailable, time.Second, debug, "every eligible node is full"},
	{CodeNoNode, http.StatusServiceUnavailable, time.Second, debug, "no node is eligible; `detail` states why"},
	{CodeNoLicence, http.StatusServiceUnavailable, time.Second, debug, "every conference licence is in use"},
	{CodeNodeFailed, http.StatusBadGateway, 0, debug, "every node that tried the work failed"},
	{CodeTurnFinalized, http.StatusConflict, 0, debug, "the turn accepts no more jobs"},
	{CodeUnitRefused, http.StatusBadGateway, 0, debug, "the media unit refused the conference"},
	{CodeEnded, http.StatusConflict, 0, debug, "the conference has ended, or was ended before it was open"},
	{CodeLinkUsed, http.StatusGone, 0, debug, "the invitation link has admitted as many guests as it may"},
	{CodeLinkRevoked, http.StatusGone, 0, debug, "the invitation link was revoked"},
	{CodeRemoved, http.StatusForbidden, 0, debug, "the participant was removed from the conference"},
	{CodeInterrupted, 0, 0, debug, "of a model call: its process or its task ended before the outcome was recorded; of a task: this happened to as many calls as a step may make"},
	{CodeNotStarted, 0, 0, debug, "of a model call: its worker or its task ended before the call was made, such as while it waited for a slot"},
	{CodeNotServed, http.StatusServiceUnavailable, 30 * time.Second, slog.LevelWarn, "no worker serves a model that the task needs; `detail` names the queue"},
	{CodeErased, http.StatusGone, 0, debug, "the content was erased by its owner or because of its age"},
	{CodeLost, 0, 0, debug, "the run of the work was ended or lost outside of berth; submit it again"},
	{CodeUnreadableImage, 0, 0, debug, "no text could be read from the image"},
}

var codeInfo = func() map[Code]CodeInfo {
	m := map[Code]CodeInfo{}
	for _, c := range codes {
		m[c.Code] = c
	}
	return m
}()

// Codes returns all codes, in the order of their table.
func Codes() []CodeInfo { return codes }

// Info returns the row of a code; a zero one when the code is unknown.
func (c Code) Info() CodeInfo { return codeInfo[c] }

// Error is an error with a code for clients and a message for users. The wrapped error is logged and never shown.
type Error struct {
	Code    Code
	Field   string // the invalid field of the request, if any
	Message string
	Err     error
}

// Errorf returns an Error whose message is shown to the caller.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns a CodeInvalid error of the named field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// With returns a copy of e that wraps err.
func (e *Error) With(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Field != "" {
		s = string(e.Code) + ": " + e.Field + ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first Error or Refusal in err's chain, CodeInternal when there is none, and an empty
// code for nil.
func CodeOf(err error) Code {
	var e *Error
	var r *Refusal
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &r):
		return r.Code
	default:
		return CodeInternal
	}
}

// Found returns the result of a read and whether there was one: CodeNotFound is not an error.
func Found[T any](v T, err error) (value T, ok bool, _ error) {
	if CodeOf(err) == CodeNotFound {
		return v, false, nil
	}
	return v, err == nil, err
}
