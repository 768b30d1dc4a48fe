package main

import (
	"encoding/json"
	"fmt"
	"time"
)

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
