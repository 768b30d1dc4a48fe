package redisconn

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"berth/internal/health"
	"berth/internal/testdocs"
)

var update = flag.Bool("update", false, "write the table of problems to docs/operations.md")

// The documentation lists every problem in the words that operators read.
func TestDocs_Problems_AreListed(t *testing.T) { // B7
	t.Parallel()
	var b strings.Builder
	b.WriteString("| `code` | Redis replies | setting | problem and what to change | a process starts |\n| --- | --- | --- | --- | --- |\n")
	row := func(replies []string, r health.Reason) {
		said := ""
		for i, reply := range replies {
			if i > 0 {
				said += ", "
			}
			said += "`" + reply + "`"
		}
		setting := ""
		if r.Setting != "" {
			setting = "`" + strings.ReplaceAll(r.Setting, ", ", "`, `") + "`"
		}
		starts := "yes"
		if r.Lasting {
			starts = "no"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Code, said, setting, r.Text, starts)
	}
	for _, r := range replies {
		row(r.prefixes, r.Reason)
	}
	for _, r := range []health.Reason{
		unknownMaster, noSentinel, notTLS, needsTLS, certificate, ownCertificate, closed, noHandshake, noReply, unreachable, unknownFormat, rejected, evicts,
	} {
		row(nil, r)
	}
	testdocs.RequireBlock(t, "../../docs/operations.md", "redis problems", b.String(), *update)
}
