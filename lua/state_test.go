package lua_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testdocs"
	"berth/lua"
)

// Every key belongs to a kind of state, so that it is decided what happens to it after a loss; docs/architecture.md has the same table.
func TestStates_EachKey_HasAnOwner(t *testing.T) { // L12
	t.Parallel()
	channels := []string{ // nothing is stored in them
		"Channel", "TasksEnded", "Wake", "Tick", "ConferenceUpdated", "NodeUpdated", "NodeChanged", "PoolUpdated", "NodeFree", "OutboxFilled",
		"SessionUpdated", "JobCreated", "ConfigUpdated",
	}
	unused := map[string]bool{}
	for _, s := range lua.States() {
		for _, pattern := range s.Keys {
			unused[pattern] = true
		}
	}
	for _, keys := range []lua.Keys{{}, {Cell: "c1"}} {
		builders := reflect.TypeFor[lua.Keys]()
		for i := range builders.NumMethod() {
			m := builders.Method(i)
			if m.Type.Out(0).Kind() != reflect.String || slices.Contains(channels, m.Name) {
				continue
			}
			args := []reflect.Value{reflect.ValueOf(keys)}
			for j := 1; j < m.Type.NumIn(); j++ {
				v := reflect.New(m.Type.In(j)).Elem()
				if v.Kind() == reflect.String {
					v.SetString("a/b:c")
				}
				args = append(args, v)
			}
			key := m.Func.Call(args)[0].String()
			of := keys.StatesOf(key)
			require.NotEmpty(t, of, "Keys.%s: %s belongs to no kind of lua.States", m.Name, key)
			for _, s := range of {
				for _, pattern := range s.Keys {
					if keys.Matches(pattern, key) {
						delete(unused, pattern)
					}
				}
			}
		}
	}
	require.Empty(t, unused, "no key has such a name")

	var b strings.Builder
	b.WriteString("| state | owner | after a loss | keys |\n| --- | --- | --- | --- |\n")
	for _, s := range lua.States() {
		b.WriteString("| " + s.Name + " | " + string(s.Owner) + " | " + s.Returns + " | `" + strings.Join(s.Keys, "`, `") + "` |\n")
	}
	testdocs.RequireBlock(t, "../docs/architecture.md", "state in Redis", b.String(), *update)
}
