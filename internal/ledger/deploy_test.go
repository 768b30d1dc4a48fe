package ledger

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testdb"
)

// recipe returns the blocks of a section of docs/deploy.md, by language.
func recipe(t *testing.T, section string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, found, section)
	after, _, _ = strings.Cut(after, "\n## ")
	blocks := map[string][]string{}
	for _, m := range regexp.MustCompile("(?s)( *)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(after, -1) {
		blocks[m[2]] = append(blocks[m[2]], strings.ReplaceAll(m[3], "\n"+m[1], "\n"))
	}
	return blocks
}

// The recipes are followed literally, on servers that require passwords.
func TestDeploy_PostgresRecipes_Work(t *testing.T) { // FI2, FI4
	t.Parallel()
	primary, addr := testdb.StartPasswords(t)
	standby := recipe(t, "PostgreSQL with a standby")
	require.Len(t, standby["sql"], 2)
	require.Len(t, standby["sh"], 1)
	as := strings.NewReplacer("berth", "app") // which is the superuser of tests
	statements := func(s *testdb.Server, block string) {
		for statement := range strings.SplitSeq(as.Replace(block), ";") {
			if strings.TrimSpace(statement) != "" {
				s.Do(t, statement)
			}
		}
	}
	statements(primary, standby["sql"][0])
	second := primary.StartStandby(t, standby["sh"][0])
	statements(primary, standby["sql"][1])
	l := open(t, "postgres://app:change-me@"+addr+","+second.Addr()+"/app")
	writes(t, l)

	ini := recipe(t, "PgBouncer")["ini"]
	require.Len(t, ini, 1)
	settings := strings.NewReplacer("db1.internal", "HOST", "5432", "PORT", "6432", "LISTEN", "/etc/pgbouncer", "DIR", "berth", "app").Replace(ini[0])
	pooler := testdb.StartPoolerWith(t, primary, settings, `"app" "change-me"`+"\n")
	pooled := open(t, "postgres://app:change-me@"+pooler.Addr()+"/app")
	require.True(t, pooled.connections.pooled.Load())
	writes(t, pooled)

	primary.Kill()
	second.Promote(t)
	writes(t, l)
	pooler.Target(t, second)
	writes(t, pooled)
}
