package testdb

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Template makes databases that are copies of one, which is prepared at first use: to migrate a database for each test would
// take more time than most tests.
type Template struct {
	sqlite   func() ([]byte, error)
	postgres func() (name string, err error)
}

// NewTemplate returns a template that prepare makes of an empty database. prepare closes its connections.
func NewTemplate(prepare func(dsn string) error) *Template {
	return &Template{
		sqlite: sync.OnceValues(func() ([]byte, error) {
			dir, err := os.MkdirTemp("", "berth-sqlite-")
			if err != nil {
				return nil, fmt.Errorf("create a directory for SQLite: %w", err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			file := filepath.Join(dir, "template.db")
			if err := prepare("sqlite:" + file); err != nil {
				return nil, err
			}
			return os.ReadFile(file) //nolint:gosec // made above
		}),
		postgres: sync.OnceValues(func() (string, error) {
			name := "template_" + strings.ToLower(rand.Text())
			s, err := shared()
			if err != nil {
				return "", err
			}
			if err := s.admin("CREATE DATABASE " + name); err != nil {
				return "", err
			}
			return name, prepare(s.dsn(name))
		}),
	}
}

// Each is the function Each with copies of the template.
func (t *Template) Each(test *testing.T, f func(t *testing.T, dsn string)) {
	test.Helper()
	each(test, map[string]func(testing.TB) string{"sqlite": t.SQLite, "postgres": t.Postgres}, f)
}

// SQLite is the function SQLite with a copy of the template.
func (t *Template) SQLite(tb testing.TB) string {
	tb.Helper()
	b, err := t.sqlite()
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "berth.db")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		tb.Fatal(err)
	}
	return "sqlite:" + file
}

// Postgres is the function Postgres with a copy of the template.
func (t *Template) Postgres(tb testing.TB) string {
	tb.Helper()
	name, err := t.postgres()
	if err != nil {
		tb.Fatal(err)
	}
	return sharedServer(tb).database(tb, name)
}
