package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/dustin/go-humanize"

	"berth"
)

// hashRequest returns a hash of what a request asks for. Requests with equal parts are the same request.
func hashRequest(parts ...any) (string, error) {
	b, err := json.Marshal(append([]any{"v1"}, parts...))
	if err != nil {
		return "", fmt.Errorf("hash request: %w", err)
	}
	return hash(b), nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// exceeds returns the error of a field that is longer than its limit in bytes.
func exceeds(field string, limit int64) error {
	return errorIn(field, berth.CodeTooLarge, "exceeds the limit of %s", sizeText(limit))
}

// sizeText returns a number of bytes as messages state it.
func sizeText(n int64) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return humanize.Comma(n) + " bytes"
	}
}

// errorIn returns an error of a field of the request.
func errorIn(field string, code berth.Code, format string, args ...any) *berth.Error {
	err := berth.Errorf(code, format, args...)
	err.Field = field
	return err
}

// optionalID returns a CodeInvalid error that names field when id is neither empty nor valid.
func optionalID(field, id string) error {
	if id == "" {
		return nil
	}
	return berth.ValidID(field, id)
}
