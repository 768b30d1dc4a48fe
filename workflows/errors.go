package workflows

import (
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// maxErrorBytes bounds the text of a node's error.
const maxErrorBytes = 500

// refuse returns an error whose type is the code, which a retry would not fix.
func refuse(code berth.Code, message string) error {
	return temporal.NewNonRetryableApplicationError(message, string(code), nil)
}

// refuseFor returns the refusal of a submission, with the reasons in detail.
func refuseFor(submissionID string, code berth.Code, message string, detail berth.Refusal) error {
	detail.SubmissionID = submissionID
	return temporal.NewNonRetryableApplicationError(message, string(code), nil, detail)
}

// refusalDetail returns the reasons of an activity's refusal, which are optional.
func refusalDetail(err error) (detail berth.Refusal) {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok && app.HasDetails() {
		_ = app.Details(&detail)
	}
	return detail
}

// refusalCode returns the code of an activity's refusal; CodeInternal when it failed otherwise, empty for nil.
func refusalCode(err error) berth.Code {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &app):
		return berth.Code(app.Type())
	default:
		return berth.CodeInternal
	}
}

// refusalMessage returns the text of an activity's refusal.
func refusalMessage(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	return "node assignment is unavailable"
}

// printable returns text from outside as one printable line.
func printable(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	}), " ")
}

// clipText cuts text from outside to limit bytes and an ellipsis, because histories hold small values only.
func clipText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.TrimSpace(text[:limit]) + "…"
}

// unresponsive reports whether a node did not accept its work, or missed heartbeats while running it.
func unresponsive(err error) bool {
	timeout, ok := errors.AsType[*temporal.TimeoutError](err)
	return ok && timeout.TimeoutType() != enums.TIMEOUT_TYPE_START_TO_CLOSE
}

const (
	// outageMargin is how much later than the end of an outage of Temporal its timeouts may be noticed.
	outageMargin = 10 * time.Second
	// maxOutages bounds how often work that was lost in an outage of Temporal runs again without being counted.
	maxOutages = 10
	// checkOutageFor is how long it is tried to find out whether there was one.
	checkOutageFor = 5 * time.Second
)

// outageError describes the end of work in an outage of Temporal.
const outageError = "Temporal was unavailable, so that the outcome on the node is unknown"

// inOutage reports whether work has ended because Temporal, and not the node, was unavailable. within is how long the node may take to
// accept the work, or between heartbeats.
func inOutage(ctx workflow.Context, err error, within time.Duration) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if ok && app.Type() == string(berth.CodeInterrupted) {
		return true
	}
	if !unresponsive(err) {
		return false
	}
	began := workflow.Now(ctx)
	available, err := untilTime[Availability](ctx, began.Add(checkOutageFor), attemptTimeout, CheckTemporalActivity)
	return err == nil && available.For-workflow.Now(ctx).Sub(began) < within+outageMargin
}

// permanentCode returns the code of work that failed for a reason that every node would have, and "" for other errors.
func permanentCode(err error) berth.Code {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok || !app.NonRetryable() {
		return ""
	}
	switch code := berth.Code(app.Type()); code {
	case berth.CodeInvalid, berth.CodeTooLarge:
		return code
	default:
		return ""
	}
}

// attemptError describes in one short line why a node failed.
func attemptError(err error) string {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(err, &app):
		return clipText(printable(app.Message()), maxErrorBytes)
	case temporal.IsCanceledError(err):
		return "the node cancelled the work"
	case !errors.As(err, &timeout):
		return "the node's response could not be decoded"
	case timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return "the node did not accept the work in time"
	case timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT:
		return "the node missed heartbeats"
	default:
		return "the node did not finish in time"
	}
}
