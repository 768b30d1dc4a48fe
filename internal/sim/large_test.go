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

// Work that grew with the square of the input would take minutes. The time is the processor's, and the test runs alone: others
// may keep the machine busy.
func TestAnswer_LargeInput_TakesSeconds(t *testing.T) {
	const size = 256 << 10 // twice in each request
	enclose := func(name, text string) string {
		return fmt.Sprintf("<document name=%q id=\"9\">\n%s\n</document id=\"9\">\n", name, text)
	}
	fill := func(piece string) string { return strings.Repeat(piece, size/len(piece)) }
	stages := "<<stage:one>>\nText.\n<<stage:two>>\n<<item:it {\"name\":\"text\",\"found\":true,\"quote\":\"the passage\"}>>\n<<stage:three>>\nA score."
	for name, text := range map[string]string{
		"one line":          fill("x"),
		"one sentence":      fill("word 12 Names, and "),
		"one Chinese line":  fill("文字"),
		"bullets":           fill("- Alpha beta 3 days Gamma\n"),
		"headings":          fill("# Part\n- entry\n\n"),
		"labels":            fill("Name: value of it\n"),
		"openings":          fill("<document name=\"a\" id=\"1\">\n"),
		"closings":          fill("</document id=\"1\">\n"),
		"tags":              fill("<a>\n<b>\n"),
		"fences":            fill("```\n\"\"\"\n"),
		"braces":            fill(`{"`),
		"nested objects":    fill(`{"a":`),
		"small objects":     fill(`{"type":"x"} `),
		"nested arrays":     fill("["),
		"stages":            fill("<<stage:a>>\n"),
		"different stages":  fill("<<stage:a>>\n<<item:b {\"c\":\"d\"}>>\n") + stages,
		"items":             fill(`<<item:x {"a":"b"}>>`),
		"unfinished items":  fill(`<<x {"a": b, `),
		"capitals":          fill("A B C D "),
		"blank lines":       fill("\n"),
		"numbers":           fill("1,234,567 "),
		"colons":            fill("a: "),
		"numbered headings": "Use these headings:\n" + fill("1. Part: two questions about gaps\n"),
	} {
		t.Run(name, func(t *testing.T) {
			begin := processorTime(t)
			schema := object{"type": "object", "required": []string{"title", "list", "missing"}, "properties": object{
				"title": object{"type": "string"}, "list": object{"type": "array", "items": object{"type": "string", "pattern": "[a-z]+$"}},
				"missing": object{"type": "array", "items": object{"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "string"}}}},
			}}
			for _, request := range []object{
				chat(text, text), chat(stages, enclose("a", text)+enclose("b", text)), withSchema(chat("", enclose("a", text)+enclose("b", text)), schema),
			} {
				answer, status := complete(t, request)
				require.Equal(t, http.StatusOK, status)
				require.Regexp(t, simulated, answer)
				require.Less(t, len(answer), size)
			}
			require.Less(t, processorTime(t)-begin, 20*time.Second)
		})
	}
}

// processorTime returns the time that the process has computed.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
