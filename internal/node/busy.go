package node

import (
	"errors"
	"net/http"
	"time"

	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/llm"
)

// busy is the error of work that the driver could not take because what it calls is busy. After is when to retry, 0 if that is not
// known.
type busy struct {
	message string
	after   time.Duration
}

func (b *busy) Error() string { return b.message }

// returned is the failure by which a busy node returns work.
func (b *busy) returned() error {
	return temporal.NewApplicationErrorWithOptions(b.message, berth.ErrorBusy, temporal.ApplicationErrorOptions{NextRetryDelay: b.after})
}

// isBusy reports whether a response asks to come again: 429, or 503 with Retry-After (RFC 6585, section 4, and RFC 9110, section 15.6.4).
func isBusy(status int, after time.Duration) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && after > 0
}

// busyModel returns the error of a call that a model's provider has limited, and other errors unchanged.
func busyModel(err error) error {
	if call, ok := errors.AsType[*llm.CallError](err); ok && call.Retryable && isBusy(call.Status, call.RetryAfter) {
		return &busy{call.Message, call.RetryAfter}
	}
	return err
}
