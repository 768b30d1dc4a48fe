package responses

import (
	"fmt"
	"strings"
	"testing"

	"berth/internal/testdocs"
)

// docs/openai.md has the table of the parameters.
func TestDocs_Responses_HaveTheTable(t *testing.T) { // O8
	t.Parallel()
	var b strings.Builder
	b.WriteString("| parameter | what the chat gets | what berth does |\n| --- | --- | --- |\n")
	for _, f := range fields {
		gets := map[use]string{forwarded: "as sent", translated: "`" + f.chat + "`", own: "nothing", refused: "refused"}[f.use]
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, gets, f.does)
	}
	testdocs.RequireBlock(t, "../../docs/openai.md", "parameters of a response", b.String(), *update)
}
