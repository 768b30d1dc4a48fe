package redisconn

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"berth/internal/testdocs"
)

var update = flag.Bool("update", false, "write the table of problems to docs/operations.md")

// The documentation lists every problem in the words that operators read.
func TestDocs_Problems_AreListed(t *testing.T) { // B7
	t.Parallel()
	var b strings.Builder
	b.WriteString("| `code` | Redis replies | setting | problem and what to change | a process starts |\n| --- | --- | --- | --- | --- |\n")
	row := func(replies []string, k kind) {
		said := ""
		for i, reply := range replies {
			if i > 0 {
				said += ", "
			}
			said += "`" + reply + "`"
		}
		setting := ""
		if k.setting != "" {
			setting = "`" + strings.ReplaceAll(k.setting, ", ", "`, `") + "`"
		}
		starts := "yes"
		if k.setup {
			starts = "no"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s: %s | %s |\n", k.code, said, setting, k.meaning, k.advice, starts)
	}
	for _, r := range replies {
		row(r.prefixes, r.kind)
	}
	for _, k := range []kind{
		unknownMaster, noSentinel, notTLS, needsTLS, certificate, ownCertificate, closed, noHandshake, noReply, unreachable, unknownFormat, rejected, evicts,
	} {
		row(nil, k)
	}
	testdocs.RequireBlock(t, "../../docs/operations.md", "redis problems", b.String(), *update)
}
