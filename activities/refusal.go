package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"berth"
)

// refused translates a failed placement into an application error whose type is the code and whose detail is the
// berth.Refusal. Temporal does not retry it: the workflow decides whether it can wait. An error without a code means that the
// outcome is unknown.
func refused(err error) error {
	detail, message := &berth.Refusal{Code: berth.CodeUnavailable}, "the fleet's state is unavailable; retry in a few seconds"
	var refusal *berth.Refusal
	var known *berth.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		detail, message, err = refusal, refusal.Error(), nil
	case errors.As(err, &known):
		detail, message = &berth.Refusal{Code: known.Code}, known.Message
	}
	return temporal.NewApplicationErrorWithOptions(message, string(detail.Code), temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: hideCause(err), Details: []any{*detail},
	})
}
