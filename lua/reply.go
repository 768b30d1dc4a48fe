package lua

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// texts returns the first n fields of a reply, all of which have to be strings.
func texts(res []any, n int) ([]string, bool) {
	if len(res) < n {
		return nil, false
	}
	return textList(res[:n])
}

func textList(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, len(list))
	for i, f := range list {
		if out[i], ok = f.(string); !ok {
			return nil, false
		}
	}
	return out, true
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

// msTime parses Redis's milliseconds; 0 is the zero time.
func msTime(s string) time.Time {
	n := number(s)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
