package berth

import (
	"errors"
	"fmt"
)

// Code is a stable, machine-readable name of what went wrong. Clients may switch on it (X4).
type Code string

// The codes of the HTTP API and of terminal error events.
const (
	CodeInvalid             Code = "invalid"              // a field of the request is wrong; Field names it
	CodeUnauthenticated     Code = "unauthenticated"      // no token, or one that does not verify
	CodeForbidden           Code = "forbidden"            // the token lacks the scope
	CodeNotFound            Code = "not_found"            // no such thing, or not yours
	CodeConflict            Code = "conflict"             // the thing is in a state that forbids this
	CodeIdempotencyMismatch Code = "idempotency_mismatch" // the same id or key with another body
	CodeTooLarge            Code = "too_large"            // the body is over the limit
	CodeUnsupportedMedia    Code = "unsupported_media"    // the upload is not of a kind we read
	CodeRateLimited         Code = "rate_limited"         // too many requests of this user
	CodeQueueFull           Code = "queue_full"           // the queue's bound is reached
	CodeUnavailable         Code = "unavailable"          // Redis, Temporal or the database cannot be reached: try again
	CodeInternal            Code = "internal"             // our fault; the log has it
	CodeDeadlineExceeded    Code = "deadline_exceeded"    // the task outlived its deadline (T20)
	CodeCancelled           Code = "cancelled"            // somebody cancelled the task (T25)
	CodeProviderKey         Code = "provider_key"         // the provider refused our key (T21)
	CodeProviderRejected    Code = "provider_rejected"    // the provider refused the request; trying again would not help
	CodeProviderUnavailable Code = "provider_unavailable" // the provider could not be reached or kept failing
	CodeInvalidOutput       Code = "invalid_output"       // the model's answer does not fit the schema, nor did its repair (T9)
	CodeNodeFull            Code = "node_full"            // every node that could take the work is full: try again
	CodeNoNode              Code = "no_node"              // no node can take the work; the message says why
	CodeNoLicence           Code = "no_licence"           // as many conferences are alive as there are licences: try again
	CodeNodeFailed          Code = "node_failed"          // the nodes that tried the work failed
	CodeTurnFinalized       Code = "turn_finalized"       // the turn takes no more jobs
	CodeUnitRefused         Code = "unit_refused"         // the media unit did not want the conference
	CodeEnded               Code = "ended"                // the conference was ended before it was open
	CodeUnreadableImage     Code = "unreadable_image"     // no text could be read from the image
)

// Error is a failure with a code for machines and a message for people. What is wrapped is logged, never shown.
type Error struct {
	Code    Code
	Field   string // the field of the request that is wrong; empty when none is
	Message string
	Err     error
}

// Errorf makes an Error whose message may be shown to the caller.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid is bad input in the named field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// With returns a copy that wraps err.
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
