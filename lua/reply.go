package lua

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// texts are the first n fields of a reply, all of them texts.
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

// unique is the list without repetitions, sorted.
func unique(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// number reads what a script wrote; what is not there is 0.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func float(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// msTime reads Redis's milliseconds; 0 is the zero time.
func msTime(s string) time.Time {
	n := number(s)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
