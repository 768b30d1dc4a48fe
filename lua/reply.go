package lua

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// reply reads the fields of a script's reply in order. It keeps the first failure: that of the call, or a field that the
// method of the script does not expect, such as in a reply of another version. Later reads return zero values.
type reply struct {
	name string
	all  []any
	rest []any
	err  error
}

// call runs a script; done returns its error.
func (s *Scripts) call(ctx context.Context, name string, keys []string, args ...any) *reply {
	res, err := s.run(ctx, name, keys, args...)
	return &reply{name, res, res, err}
}

// code runs a script that returns only a code.
func (s *Scripts) code(ctx context.Context, name string, keys []string, args ...any) (string, error) {
	r := s.call(ctx, name, keys, args...)
	return r.text(), r.done()
}

// done returns the first failure, also where fields are left.
func (r *reply) done() error {
	if r.more() {
		r.fail()
	}
	return r.err
}

func (r *reply) more() bool { return r.err == nil && len(r.rest) > 0 }

func (r *reply) fail() {
	if r.err == nil {
		r.err = replyError(r.name, r.all)
	}
}

// next returns the next field, which has to be a T.
func next[T any](r *reply) (v T) {
	ok := r.more()
	if ok {
		v, ok = r.rest[0].(T)
		r.rest = r.rest[1:]
	}
	if !ok {
		r.fail()
	}
	return v
}

func (r *reply) text() string { return next[string](r) }

func (r *reply) number() int64 { return next[int64](r) }

func (r *reply) duration() time.Duration { return time.Duration(r.number()) * time.Millisecond }

// code returns a text that has to be one of the known codes.
func (r *reply) code(known ...string) string {
	code := r.text()
	if !slices.Contains(known, code) {
		r.fail()
	}
	return code
}

// wide returns a number that a script formats as a string because it may be too large for an integer reply.
func (r *reply) wide() int64 {
	n, err := strconv.ParseInt(r.text(), 10, 64)
	if err != nil {
		r.fail()
	}
	return n
}

// list reads the items of a field that is a list.
func (r *reply) list(read func()) {
	items := next[[]any](r)
	rest := r.rest
	for r.rest = items; r.more(); {
		read()
	}
	r.rest = rest
}

func (r *reply) texts() (out []string) {
	r.list(func() { out = append(out, r.text()) })
	return out
}

func (r *reply) numbers() (out []int64) {
	r.list(func() { out = append(out, r.number()) })
	return out
}

// found returns the value that a command has read; ok is false where there is none.
func found(cmd *redis.StringCmd, what string) (v string, ok bool, err error) {
	v, err = cmd.Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", what, err)
	}
	return v, true, nil
}

// hash reads all fields of a hash.
func (s *Scripts) hash(ctx context.Context, key, what string) (map[string]string, error) {
	out, err := s.rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return out, nil
}

// with returns the arguments followed by the items of a list.
func with[T any](args []any, list ...T) []any {
	for _, v := range list {
		args = append(args, v)
	}
	return args
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// unique returns the list sorted and without duplicates.
func unique(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// number parses a number that a script wrote; a missing one is 0.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func float(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// optional returns a number for a script, ” for none; maybe parses it.
func optional(f *float64) any {
	if f == nil {
		return ""
	}
	return *f
}

func maybe(s string) *float64 {
	if s == "" {
		return nil
	}
	return new(float(s))
}

// msTime parses Redis's milliseconds; 0 is the zero time.
func msTime(s string) time.Time {
	n := number(s)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
