package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The work for an input of sixteen times the size may be sixteen times the work, with a margin for what varies, but not 256 times. It
// is the processor's time that counts, and the test runs alone: others may keep the machine busy.
func TestAnswer_LargeInput_WorkGrowsWithItsSize(t *testing.T) {
	const (
		small, large = 1 << 10, 16 << 10 // each text, of which a request has two
		most         = 64
	)
	fill := func(pieces ...string) func(int) string {
		return func(size int) string {
			var b strings.Builder
			for i := 0; b.Len() < size; i++ {
				b.WriteString(strings.ReplaceAll(pieces[i%len(pieces)], "%d", fmt.Sprint(i)))
			}
			return b.String()
		}
	}
	for name, text := range map[string]func(size int) string{
		"one line":          fill("x"),
		"one sentence":      fill("word 12 Names, and "),
		"one Chinese line":  fill("文字"),
		"bullets":           fill("- Alpha beta 3 days Gamma\n"),
		"different bullets": fill("- Alpha%d beta%d %d days Gamma%d\n"),
		"headings":          fill("# Part\n- entry\n\n"),
		"many headings":     fill("# Part %d of it\n"),
		"titles":            fill("Part of\n\nText of it%d.\n\n"),
		"labels":            fill("Name: value of it\n"),
		"wrapped lines":     fill("words go on and on without an end, %d\n"),
		"names":             fill("Name%dX and "),
		"openings":          fill("<document name=\"a\" id=\"%d\">\n"),
		"closings":          fill("</document id=\"%d\">\n"),
		"small documents":   fill("<document name=\"a%d\" id=\"1\">\nSome words of it.\n</document id=\"1\">\n"),
		"tags":              fill("<a%d>\n<b>\n"),
		"fences":            fill("```\n\"\"\"\n"),
		"braces":            fill(`{"`),
		"nested objects":    fill(`{"a":`),
		"small objects":     fill(`{"type":"x"} `),
		"nested arrays":     fill("["),
		"stages":            fill("<<stage:a>>\n"),
		"different stages":  fill("<<stage:a%d>>\n<<item:b%d {\"c\":\"d\"}>>\n"),
		"items":             fill(`<<item:x%d {"a":"b"}>>`),
		"unfinished items":  fill(`<<x {"a": b, `),
		"capitals":          fill("A B C D "),
		"blank lines":       fill("\n"),
		"numbers":           fill("1,234,567 "),
		"colons":            fill("a: "),
		"Arabic":            fill("كلمات كثيرة في سطر واحد %d، "),
		"Thai":              fill("เครื่องทำงาน"),
		"emoji":             fill("🎉 %d 👩‍👩‍👧\n"),
		"numbered headings": fill("Use these headings:\n", "1. Part: two questions about gaps\n"),
	} {
		t.Run(name, func(t *testing.T) {
			before := workFor(t, text(small))
			work := workFor(t, text(large))
			t.Logf("%v after %v", work, before)
			if work > time.Second { // the rest is noise
				require.Less(t, work, most*before)
			}
		})
	}
}

// workFor returns the processor's time that answers to requests with a text take.
func workFor(t *testing.T, text string) time.Duration {
	t.Helper()
	stages := "<<stage:one>>\nText.\n<<stage:two>>\n<<item:it {\"name\":\"text\",\"found\":true,\"quote\":\"the passage\"}>>\n<<stage:three>>\nA score."
	schema := object{"type": "object", "required": []string{"title", "list", "missing"}, "properties": object{
		"title": object{"type": "string"}, "list": object{"type": "array", "items": object{"type": "string", "pattern": "[a-z]+$"}},
		"missing": object{"type": "array", "items": object{"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "string"}}}},
	}}
	both := document("a", "x", text) + document("b", "x", text)
	begin := processorTime(t)
	for _, request := range []object{chat(text, text), chat(stages, both), withSchema(chat("", both), schema)} {
		answer, status := complete(t, request)
		require.Equal(t, http.StatusOK, status)
		require.Regexp(t, simulated, answer)
		require.Less(t, len(answer), 256<<10)
	}
	return processorTime(t) - begin
}

// processorTime returns the time that the process has computed.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
