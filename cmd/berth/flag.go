package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// idArg is an argument that names one thing, and must not be empty.
type idArg string

// UnmarshalText rejects an empty text.
func (a *idArg) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		return errors.New("must not be empty")
	}
	*a = idArg(b)
	return nil
}

// negativeNumber is part of kong's error of a negative number, which it reads as a flag.
var negativeNumber = regexp.MustCompile(`unknown flag (-[0-9])`)

// negativeError is a usage error in other words.
type negativeError struct {
	error
	digit string
}

func (e negativeError) Error() string {
	return fmt.Sprintf("unknown flag %s: write -- before a negative number and after all flags, as in -- -5", e.digit)
}

func (e negativeError) Unwrap() error { return e.error }

// explainFlag returns a usage error that states how a negative number is written.
func explainFlag(err error) error {
	if err == nil {
		return nil
	}
	if m := negativeNumber.FindStringSubmatch(err.Error()); m != nil {
		return negativeError{err, m[1]}
	}
	return err
}

// timeFlag is the value of a flag with a point in time.
type timeFlag struct{ time.Time }

// UnmarshalText accepts RFC 3339.
func (f *timeFlag) UnmarshalText(b []byte) error {
	t, err := time.Parse(time.RFC3339, string(b))
	if err != nil {
		return fmt.Errorf("must be a time such as 2006-01-02T15:04:05Z or 2006-01-02T15:04:05+01:00, got %q", b)
	}
	f.Time = t
	return nil
}

// expiryFlag is when something expires; the zero time for never.
type expiryFlag struct{ timeFlag }

// UnmarshalText accepts what timeFlag does, a number of days from now, and never.
func (f *expiryFlag) UnmarshalText(b []byte) error {
	if string(b) == "never" {
		f.Time = time.Time{}
		return nil
	}
	if days, ok := strings.CutSuffix(string(b), "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= maxDays {
			f.Time = time.Now().AddDate(0, 0, n)
			return nil
		}
		return fmt.Errorf("must be a number of days from 1d to %dd, got %q", maxDays, b)
	}
	return f.timeFlag.UnmarshalText(b)
}

const maxDays = 36_500

// jsonFlag is the value of a flag with JSON.
type jsonFlag json.RawMessage

// UnmarshalText accepts one JSON value.
func (f *jsonFlag) UnmarshalText(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf(`must be JSON such as {"topic":"planning"}, got %q: %w`, b, err)
	}
	*f = b
	return nil
}
