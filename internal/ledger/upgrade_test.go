package ledger

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testdb"
)

// later makes databases that a later version has migrated: each table has a column that this version does not know, and there is a
// table more.
var later = testdb.NewTemplate(func(dsn string) error {
	l, err := Open(context.Background(), dsn, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	tables, err := l.tables()
	if err != nil {
		return err
	}
	statements := []string{
		"CREATE TABLE of_a_later_version (id TEXT NOT NULL PRIMARY KEY)",
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)",
	}
	for _, table := range tables {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s ADD COLUMN of_a_later_version TEXT NOT NULL DEFAULT 'later'", table))
	}
	for _, statement := range statements {
		if _, err := l.write.ExecContext(context.Background(), statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return l.Close()
})

// tables returns the tables of the schema.
func (l *Ledger) tables() ([]string, error) {
	query := `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'passage_index%' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%'`
	if l.dialect.name == "postgres" {
		query = `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_name NOT LIKE 'goose_%'`
	}
	rows, err := l.read.QueryContext(context.Background(), query)
	return collect("tables", rows, err, value[string])
}

// B6: workers and APIs of the previous version continue after the next one has migrated the database: a migration only adds what the
// previous version need not know.
func TestMigrations_AfterTheFirst_OnlyAdd(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"sqlite", "postgres"} {
		files, err := fs.Glob(migrations, "migrations/"+dialect+"/*.sql")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files[1:] { // the first one creates the schema
			text, err := fs.ReadFile(migrations, file)
			require.NoError(t, err)
			require.Empty(t, notAdditive(string(text)), "%s: the previous version cannot run on the schema", file)
		}
	}
}

func TestNotAdditive_Statements_AreClassified(t *testing.T) { // B6: proves that the test above can fail
	t.Parallel()
	for statement, additive := range map[string]bool{
		"ALTER TABLE a ADD COLUMN b TEXT DEFAULT ''; CREATE UNIQUE INDEX c ON a (b) WHERE b <> ''": true,
		"CREATE TABLE a (id TEXT); CREATE UNIQUE INDEX a_ids ON a (id)":                            true,
		"ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT ''":                                      true,
		"ALTER TABLE a ADD COLUMN b TEXT -- NOT NULL later":                                        true,
		"DROP INDEX a_ids; CREATE INDEX a_ids ON a (b, c)":                                         true,
		"UPDATE a SET b = c WHERE d = 0":                                                           true,
		"INSERT INTO a (b) VALUES ('x;y')":                                                         true,

		"ALTER TABLE a ADD COLUMN b TEXT NOT NULL":                                                 false,
		"ALTER TABLE a ADD COLUMN b TEXT DEFAULT '' CHECK (b <> 'x')":                              false,
		"ALTER TABLE a DROP COLUMN b":                                                              false,
		"ALTER TABLE a RENAME TO b":                                                                false,
		"ALTER TABLE a ALTER COLUMN b SET NOT NULL":                                                false,
		"CREATE UNIQUE INDEX a_ids ON a (id)":                                                      false,
		"CREATE UNIQUE INDEX c ON a (b) WHERE b <> ''":                                             false,
		"ALTER TABLE a ADD COLUMN b TEXT DEFAULT ''; CREATE UNIQUE INDEX c ON a (b)":               false,
		"ALTER TABLE a ADD COLUMN b TEXT DEFAULT ''; CREATE UNIQUE INDEX c ON a (d) WHERE b <> ''": false,
		"DROP TABLE a":  false,
		"DELETE FROM a": false,
		"CREATE TRIGGER a AFTER INSERT ON b BEGIN SELECT 1; END": false,
	} {
		up := "-- +goose Up\n" + statement + ";\n-- +goose Down\nDROP TABLE a;\n"
		require.Equal(t, additive, len(notAdditive(up)) == 0, "%s: %v", statement, notAdditive(up))
	}
}

var (
	comment     = regexp.MustCompile(`(?m)--.*$`)
	text        = regexp.MustCompile(`'[^']*'`)
	newTable    = regexp.MustCompile(`^CREATE TABLE (\w+)`)
	uniqueIndex = regexp.MustCompile(`^CREATE UNIQUE INDEX \w+ ON (\w+)`)
	harmless    = regexp.MustCompile(`^(CREATE INDEX|DROP INDEX|UPDATE|INSERT INTO) `)
	newColumn   = regexp.MustCompile(`^ALTER TABLE \w+ ADD COLUMN `)
	emptyColumn = regexp.MustCompile(`^ALTER TABLE (\w+ ADD COLUMN \w+) .*DEFAULT ''$`)
	// uniqueSet is an index of the rows that have a value. An earlier version writes none into a column that it does not know.
	uniqueSet  = regexp.MustCompile(`^CREATE UNIQUE INDEX \w+ ON (\w+) \((\w+)\) WHERE (\w+) <> ''$`)
	constraint = regexp.MustCompile(`\b(UNIQUE|CHECK|REFERENCES|PRIMARY KEY|GENERATED)\b`)
)

// notAdditive returns the statements of a migration that may disturb a version that does not know it.
func notAdditive(migration string) (found []string) {
	_, up, _ := strings.Cut(migration, "-- +goose Up")
	up, _, _ = strings.Cut(up, "-- +goose Down")
	up = text.ReplaceAllString(comment.ReplaceAllString(up, ""), "''")
	created := map[string]bool{}
	for statement := range strings.SplitSeq(up, ";") {
		s := strings.ToUpper(strings.Join(strings.Fields(statement), " "))
		if empty := emptyColumn.FindStringSubmatch(s); empty != nil {
			created[empty[1]] = true
		}
		switch table, unique, set := newTable.FindStringSubmatch(s), uniqueIndex.FindStringSubmatch(s), uniqueSet.FindStringSubmatch(s); {
		case s == "" || harmless.MatchString(s):
		case table != nil:
			created[table[1]] = true
		case unique != nil && created[unique[1]]:
		case set != nil && set[2] == set[3] && created[set[1]+" ADD COLUMN "+set[2]]:
		case newColumn.MatchString(s) && !constraint.MatchString(s) &&
			(strings.Contains(s, " DEFAULT ") || !strings.Contains(s, " NOT NULL")):
		default:
			found = append(found, s)
		}
	}
	return found
}
