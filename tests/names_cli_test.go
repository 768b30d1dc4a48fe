package tests

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testnames"
)

// FR3: titles, reasons, speakers, users and languages that are given to commands are stored and printed as the rules for names and
// languages say; invalid ones are refused with their field.
func TestCLI_NamesOfTheWorld_PrintedAsStored(t *testing.T) {
	t.Parallel()
	rows := testnames.All()
	s := namesStack(t, rows)
	const zone = namesZone
	run := func(token string, succeeds bool, args ...string) string {
		t.Helper()
		p := s.start("berth", args, []string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + token})
		s.eventually(strings.Join(args, " ")+" to end", func() bool {
			select {
			case <-p.done:
				return true
			default:
				return false
			}
		})
		out := string(p.output())
		require.Equal(t, succeeds, p.cmd.ProcessState.Success(), "%q: %s", args, out)
		return out
	}
	operator, titles := s.token("op", "operator"), map[string]string{}
	for _, n := range rows {
		own := s.token(n.Identity)
		number, _, _ := strings.Cut(run(own, true, "conference", "create", "--title="+n.Title), "\n")
		titles[number] = testnames.Stored(n.Title)
		require.Contains(t, run(operator, true, "account", "credit", "--reason="+n.Name, "--", n.Identity, "5"), n.Identity+": 5 credits", n.Language)
		entries, _, err := s.operator().CreditEntries(t.Context(), n.Identity, "", 1)
		require.NoError(t, err)
		require.Equal(t, n.Stored(), entries[0].Reason, n.Language)
		_, err = s.operator().AddCredits(t.Context(), "all", berth.Credit, n.Name, berth.NewID(""))
		require.NoError(t, err)
		status, _ := s.send(http.MethodPost, "/v1/executions", own, map[string]any{"executor": "echo"})
		require.Equal(t, http.StatusAccepted, status, n.Language)
		if n.Code != n.Tag {
			require.Contains(t, run(own, true, "turn", "--session=s-1", "--from="+n.Code, "--to=eo"), "session s-1, "+n.Tag+" to eo, pool", n.Language)
			status, session := s.send(http.MethodGet, "/v1/sessions/s-1", own, nil)
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, n.Tag, session["srcLang"], n.Language)
		}
	}
	all := run(operator, true, "account", "entries", "all", "--limit=100")
	for _, n := range rows {
		require.Regexp(t, `(?m) \+1 .* `+regexp.QuoteMeta(n.Stored())+`$`, all, n.Language)
	}
	conferences := run(operator, true, "conference", "list", "--limit=1000")
	for number, title := range titles {
		require.Regexp(t, `(?m)^`+number+` .* `+regexp.QuoteMeta(title)+`$`, conferences)
	}
	executions := run(operator, true, "execution", "list", "--limit=1000")
	for _, n := range rows {
		require.Regexp(t, `(?m)^\S+ +`+regexp.QuoteMeta(n.Identity)+` +echo +[a-z]+ `, executions, n.Language)
	}
	require.Contains(t, run(operator, true, "node", "list"), " "+zone+" ")

	alice := s.token("alice")
	for _, bad := range []string{"a\u202eb", "a\nb", "\u2067a", "\x1b[2J", "\u200d", strings.Repeat("田", 501), "\xff"} {
		require.Contains(t, run(alice, false, "conference", "create", "--title="+bad), "title: ", "%q", bad)
		require.Contains(t, run(operator, false, "account", "credit", "alice", "5", "--reason="+bad), "reason: ", "%q", bad)
	}
	for _, bad := range []string{"english", "und", "中文", "../en"} {
		require.Contains(t, run(alice, false, "turn", "--from="+bad, "--to=eo"), "srcLang: invalid language", "%q", bad)
	}
}
