package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"berth"
	"berth/internal/llm"
)

// Error is an error as clients of the protocol read it.
type Error struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param,omitempty"` // the field that is wrong
	Code    string `json:"code,omitempty"`
	// RetryAfter is how long the client should wait before it retries, 0 for as it likes.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	// Final: the same request would fail again. The official clients retry 408, 409, 429 and 5xx unless a header forbids it.
	Final bool `json:"final,omitempty"`
}

// The types of errors.
const (
	TypeRequest = "invalid_request_error"
	TypeServer  = "server_error"
	TypeLimit   = "requests" // a limit of requests, or of calls at a time
	TypeTokens  = "tokens"   // a limit of tokens
	TypeQuota   = "insufficient_quota"
)

func (e *Error) Error() string { return Named(e.Param, e.Message) }

// Named returns a message that names the field that is wrong: clients show their users the message only.
func Named(param, message string) string {
	// Messages about types have the words text and list, which may be the name of the field, too.
	if param == "" || strings.Contains(message, param) && !strings.HasPrefix(message, "must be ") {
		return message
	}
	return param + ": " + message
}

// Body returns the error as the body of a response, or as the data of the last event of a stream. All four fields are there, null if they are
// empty.
func (e *Error) Body() []byte {
	null := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	b, err := json.Marshal(struct {
		Error inner `json:"error"`
	}{inner{e.Message, e.Type, null(e.Param), null(e.Code)}})
	if err != nil {
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`) // texts do not fail
	}
	return b
}

// SetHeader sets the fields of a response by which clients decide whether and when they retry. One that the user has to act on has no time.
func (e *Error) SetHeader(h http.Header) {
	if e.Final {
		h.Set("X-Should-Retry", "false")
		return
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		h.Set("Retry-After-Ms", strconv.FormatInt(e.RetryAfter.Milliseconds(), 10))
	}
}

// Invalid returns an error of the request.
func Invalid(param, code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: Named(param, fmt.Sprintf(format, args...)), Type: TypeRequest, Param: param, Code: code, Final: true}
}

// errorRow is what clients read for a code of berth, or for why a provider failed a call.
type errorRow struct {
	status     int
	kind, code string
	final      bool
}

// codeRows is the table of berth's codes. One that is not in it is an internal error. docs/openai.md is generated from it.
var codeRows = map[berth.Code]errorRow{
	berth.CodeInvalid:             {400, TypeRequest, "invalid_value", true},
	berth.CodeUnauthenticated:     {401, TypeRequest, "invalid_api_key", true},
	berth.CodeForbidden:           {403, TypeRequest, "permission_denied", true},
	berth.CodeNotFound:            {404, TypeRequest, "not_found", true},
	berth.CodeConflict:            {409, TypeRequest, "conflict", true},
	berth.CodeIdempotencyMismatch: {422, TypeRequest, "idempotency_mismatch", true},
	berth.CodeTooLarge:            {413, TypeRequest, "request_too_large", true},
	berth.CodeUnsupportedMedia:    {415, TypeRequest, "unsupported_media_type", true},
	berth.CodeRateLimited:         {429, TypeLimit, "rate_limit_exceeded", false},
	berth.CodeQueueFull:           {429, TypeLimit, "rate_limit_exceeded", false},
	berth.CodeBudgetExceeded:      {429, TypeQuota, "insufficient_quota", true},
	berth.CodeUnavailable:         {503, TypeServer, "unavailable", false},
	berth.CodeNotServed:           {503, TypeServer, "not_served", false},
	berth.CodeInternal:            {500, TypeServer, "internal_error", false},
	berth.CodeDeadlineExceeded:    {504, TypeServer, "deadline_exceeded", true},
	berth.CodeCancelled:           {409, TypeRequest, "cancelled", true},
	berth.CodeInterrupted:         {502, TypeServer, "interrupted", true},
	berth.CodeNotStarted:          {503, TypeServer, "not_started", false},
	berth.CodeLost:                {502, TypeServer, "lost", false},
	berth.CodeErased:              {410, TypeRequest, "erased", true},
	berth.CodeProviderKey:         {502, TypeServer, "provider_key", true},
	berth.CodeProviderRejected:    {502, TypeServer, "provider_rejected", true},
	berth.CodeProviderUnavailable: {503, TypeServer, "provider_unavailable", false},
	berth.CodeInvalidOutput:       {502, TypeServer, "invalid_output", false},
}

// causeRows is the table of why a provider failed a call. What only an operator can correct is not a mistake of the client, although the provider
// called it one. docs/openai.md is generated from it.
var causeRows = map[llm.Cause]errorRow{
	llm.CauseBadRequest: {400, TypeRequest, "", true},
	llm.CauseContext:    {400, TypeRequest, "context_length_exceeded", true},
	llm.CauseRefused:    {400, TypeRequest, "content_filter", true},
	llm.CauseTooLarge:   {413, TypeRequest, "request_too_large", true},
	llm.CauseOverLimit:  {429, TypeTokens, "rate_limit_exceeded", true},
	llm.CauseLimit:      {429, TypeLimit, "rate_limit_exceeded", false},
	llm.CauseOverload:   {503, TypeServer, "server_is_overloaded", false},
	llm.CauseTimeout:    {504, TypeServer, "timeout", false},
	llm.CauseServer:     {502, TypeServer, "provider_failed", false},
	llm.CauseConnection: {502, TypeServer, "connection", false},
	llm.CauseUnreadable: {502, TypeServer, "unreadable_answer", false},
	llm.CauseUnknown:    {502, TypeServer, "unknown_error", false},
	llm.CauseEmpty:      {502, TypeServer, "empty_answer", false},
	llm.CauseFinish:     {502, TypeServer, "unknown_finish_reason", false},
	llm.CauseTool:       {502, TypeServer, "tool_call", false},
	llm.CauseFormat:     {502, TypeServer, "wrong_format", false},
	llm.CauseMalformed:  {502, TypeServer, "malformed_answer", true},
	llm.CauseEndless:    {502, TypeServer, "endless_answer", true},
	llm.CauseTokens:     {502, TypeServer, "token_limit", true},
	llm.CauseCredit:     {502, TypeServer, "no_credit", true},
	llm.CauseKey:        {502, TypeServer, "invalid_key", true},
	llm.CausePermission: {502, TypeServer, "no_permission", true},
	llm.CauseRegion:     {502, TypeServer, "wrong_region", true},
	llm.CauseBlocked:    {502, TypeServer, "blocked", true},
	llm.CauseModel:      {502, TypeServer, "not_found", true},
	llm.CauseAddress:    {502, TypeServer, "wrong_address", true},
}

// ErrorOfTask returns why a task of a forwarded request has failed.
func ErrorOfTask(t berth.Task) *Error {
	detail := new(Error)
	if json.Unmarshal([]byte(t.ErrorDetail), detail) != nil || detail.Status == 0 {
		detail = ErrorOf(berth.Errorf(t.ErrorCode, "%s", t.ErrorMessage))
	}
	if f := t.Forwarded; f != nil && f.Response != nil && f.Response.ReplacedBy != "" {
		detail.Message = fmt.Sprintf("the answer broke off and is made again: read the response %s", f.Response.ReplacedBy)
	}
	return detail
}

// ErrorOf returns what a client reads for an error; nil for nil. The text of an error that is not berth's own is not shown.
func ErrorOf(err error) *Error {
	var own *Error
	var call *llm.CallError
	var refusal *berth.Refusal
	var known *berth.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &call):
		return callError(call)
	case errors.As(err, &refusal):
		out := ofCode(refusal.Code, refusal.Error())
		out.RetryAfter = cmp.Or(refusal.RetryAfter, out.RetryAfter)
		return out
	case errors.As(err, &known):
		out := ofCode(known.Code, Named(known.Field, known.Message))
		out.Param = known.Field
		return out
	default:
		return ofCode(berth.CodeInternal, "internal error: see the log of the server for this request")
	}
}

func ofCode(code berth.Code, message string) *Error {
	row, ok := codeRows[code]
	if !ok {
		row = codeRows[berth.CodeInternal]
	}
	out := row.error(message)
	out.RetryAfter = code.Info().RetryAfter
	return out
}

func (r errorRow) error(message string) *Error {
	return &Error{Status: r.status, Message: message, Type: r.kind, Code: r.code, Final: r.final}
}

// callError returns the error for a failed call. Of what the provider says about the client's request it keeps the message, type, param and
// code.
func callError(e *llm.CallError) *Error {
	row, ok := causeRows[e.Cause]
	if !ok {
		return ofCode(e.Code, e.Message)
	}
	out := row.error(e.Message)
	if !out.Final {
		out.RetryAfter = e.RetryAfter
	}
	if e.Said != (llm.ProviderError{}) {
		out.Message = cmp.Or(e.Said.Message, out.Message)
		out.Param = e.Said.Param
		out.Code = cmp.Or(out.Code, e.Said.Code)
		if e.Cause == llm.CauseRefused {
			out.Code = cmp.Or(e.Said.Code, out.Code)
		}
	}
	if e.Cause == llm.CauseBadRequest && e.Status == http.StatusUnprocessableEntity {
		out.Status = e.Status
	}
	return out
}
