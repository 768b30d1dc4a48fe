package lua_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/lua"
)

// scriptFile returns the text of a script without its includes.
func scriptFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name + ".lua")
	require.NoError(t, err)
	return string(b)
}

func scriptNames() []string { return slices.Sorted(maps.Keys(lua.Sources())) }

// header returns the comment at the start of a script.
func header(src string) string {
	var lines []string
	for line := range strings.Lines(src) {
		if !strings.HasPrefix(line, "--") || strings.HasPrefix(line, "-- include ") {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// code returns a script without its comments and without its Redis calls, whose arguments are not return codes.
func code(src string) string {
	var b strings.Builder
	for line := range strings.Lines(src) {
		line, _, _ = strings.Cut(line, "--")
		b.WriteString(line + "\n")
	}
	s := b.String()
	for {
		at := redisCall.FindStringIndex(s)
		if at == nil {
			return s
		}
		depth, end := 0, at[1]-1
		for ; end < len(s); end++ {
			if s[end] == '(' {
				depth++
			} else if s[end] == ')' {
				if depth--; depth == 0 {
					break
				}
			}
		}
		s = s[:at[0]] + "CALL" + s[min(end+1, len(s)):]
	}
}

var (
	redisCall  = regexp.MustCompile(`redis\.p?call\s*\(`)
	returnCode = regexp.MustCompile(`['"]([A-Z][A-Z_]+)['"]`)
	headerCode = regexp.MustCompile(`(?m)^--\s+(?:holders\s+for each |waiters\s+for each .*: )?([A-Z][A-Z_]+)\b`)
)

func TestScripts_Header_ListsKeysArgumentsResult(t *testing.T) {
	t.Parallel()
	for _, name := range scriptNames() {
		src := scriptFile(t, name)
		h := header(src)
		require.True(t, strings.HasPrefix(h, "-- "+name+": "), "%s: the first line has the name and the purpose", name)
		require.Contains(t, h, "-- Returns ", "%s: the header lists what is returned", name)
		for _, kind := range []string{"KEYS", "ARGV"} {
			used := strings.Contains(strings.TrimPrefix(src, h), kind+"[")
			require.Equal(t, used, strings.Contains(h, kind+"["), "%s: the header lists %s", name, kind)
		}
	}
}

// goSource has the scripts that this package's Go code runs, and its constants.
type goSource struct {
	run       map[string][]string // script -> methods of *Scripts that run it
	constants map[string]string   // value -> name, of the constants that look like a return code
}

func readGo(t *testing.T) goSource {
	t.Helper()
	out := goSource{run: map[string][]string{}, constants: map[string]string{}}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if v, ok := stringLiteral(n); ok {
						out.run[v] = append(out.run[v], d.Name.Name)
					}
					return true
				})
			case *ast.GenDecl:
				if d.Tok != token.CONST {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
						if v, ok := stringLiteral(spec.Values[0]); ok && returnCode.MatchString("'"+v+"'") {
							out.constants[v] = spec.Names[0].Name
						}
					}
					return true
				})
			}
		}
	}
	return out
}

func stringLiteral(n ast.Node) (string, bool) {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	v, err := strconv.Unquote(l.Value)
	return v, err == nil
}

// Every script is run by a method with its name.
func TestScripts_EachScript_HasMethodOfItsName(t *testing.T) {
	t.Parallel()
	src := readGo(t)
	for _, name := range scriptNames() {
		require.NotEmpty(t, src.run[name], "no method of *Scripts runs %s.lua", name)
		want := strings.ReplaceAll(name, "_", "")
		require.True(t, slices.ContainsFunc(src.run[name], func(m string) bool {
			// A variant may run the script, such as RestoreNodeSlot.
			return strings.EqualFold(m, want) || methodExists(t, want)
		}), "%s.lua is run by %v, not by a method with its name", name, src.run[name])
	}
}

func methodExists(t *testing.T, folded string) bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func \(s \*Scripts\) (\w+)\(`).FindAllStringSubmatch(string(b), -1) {
			if strings.EqualFold(m[1], folded) {
				return true
			}
		}
	}
	return false
}

func TestScripts_ReturnCodes_MatchConstants(t *testing.T) {
	t.Parallel()
	constants := readGo(t).constants
	used := map[string]bool{}
	for _, name := range scriptNames() {
		src := scriptFile(t, name)
		returned, described := map[string]bool{}, map[string]bool{}
		for _, m := range returnCode.FindAllStringSubmatch(code(src), -1) {
			returned[m[1]], used[m[1]] = true, true
			require.Contains(t, constants, m[1], "%s.lua returns %s, for which there is no Go constant", name, m[1])
			require.Regexp(t, `\b`+m[1]+`\b`, header(src), "%s.lua returns %s, which its header does not list", name, m[1])
		}
		require.NotEmpty(t, returned, "%s.lua returns no code", name)
		for _, m := range headerCode.FindAllStringSubmatch(header(src), -1) {
			if m[1] != "KEYS" && m[1] != "ARGV" {
				described[m[1]] = true
			}
		}
		for c := range described {
			require.True(t, returned[c], "%s.lua lists %s but never returns it", name, c)
		}
	}
	for value, name := range constants {
		require.True(t, used[value], "constant %s = %q is returned by no script", name, value)
	}
}

// L1: scripts use Redis's time, and randomness is passed in. A2: retired names are not used.
func TestScripts_ForbiddenCalls_AreAbsent(t *testing.T) {
	t.Parallel()
	for name, src := range lua.Sources() {
		require.NotContains(t, src, "-- include ", "%s: an include was not found", name)
		body := code(src)
		require.NotContains(t, body, "math.random", name)
		require.NotContains(t, body, "os.", "%s: only Redis's clock and environment are used", name)
		require.NotRegexp(t, `(?i)\b(now|clock|time)(_ms)?\s*=\s*(tonumber\()?ARGV`, body, "%s: the caller's clock", name)
		if regexp.MustCompile(`\bnow\b`).MatchString(body) {
			require.Contains(t, src, "redis.call('TIME')", "%s: now is Redis's time", name)
		}
	}
	retired := []string{"timeout" + "_node_id", "max_duration" + "_node_id"}
	for _, pattern := range []string{"*.lua", "*.go", "include/*.lua"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, word := range retired {
				require.NotContains(t, string(b), word, f)
			}
		}
	}
}

var write = regexp.MustCompile(`redis\.p?call\s*\(\s*['"](SET|HSET|HDEL|HINCRBY|INCR|DEL|ZADD|ZINCRBY|ZREM\w*|ZINCRBY|ZPOPMIN|UNLINK|HINCRBY|LPUSH|LTRIM|XADD|XTRIM|P?EXPIRE|PUBLISH|SADD|SREM)['"]`)

// A script makes every refusal before its first write, so that no write is left incomplete. A call of an included function
// that writes is a write, and so is an include that is not a function.
func TestScripts_Refusals_PrecedeWrites(t *testing.T) {
	t.Parallel()
	functions, parts := writing(t)
	writers := regexp.MustCompile(`\b(` + strings.Join(functions, "|") + `)\s*\(|(?m)^-- include (` + strings.Join(parts, "|") + `)$`)
	refusal := regexp.MustCompile(`error_reply|\breturn \{ *'(` + strings.Join([]string{
		lua.StreamFenced, lua.StreamAbsent, lua.StreamLost, lua.NodeStale, lua.NodeReregister, lua.NodeGone, lua.NodeResponsive,
		lua.JobTurnEnded, lua.SessionNoPool, lua.ConferenceNoLicence,
		lua.TaskRateLimited, lua.TaskQueueFull, lua.TaskServiceFull,
	}, "|") + `)'`)
	for _, name := range scriptNames() {
		src := scriptFile(t, name)
		body := strings.TrimPrefix(src, header(src))
		first := len(body)
		for _, r := range []*regexp.Regexp{write, writers} {
			if at := r.FindStringIndex(body); at != nil {
				first = min(first, at[0])
			}
		}
		require.NotRegexp(t, refusal, body[first:], "%s.lua refuses after it has written", name)
	}
	require.Regexp(t, writers, "grant_free_slots(room, {})")
	require.Regexp(t, writers, "-- include reserve")
	require.NotRegexp(t, writers, "next_time(1)")
	require.Regexp(t, refusal, "return { 'FENCED', last }")
}

// writing returns the included functions that write, directly or through another one, and the includes without a function that write.
func writing(t *testing.T) (functions, includes []string) {
	t.Helper()
	files, err := filepath.Glob("include/*.lua")
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		parts := regexp.MustCompile(`(?m)^local function (\w+)\(`).FindAllStringSubmatchIndex(string(b), -1)
		if len(parts) == 0 && write.Match(b) {
			includes = append(includes, strings.TrimSuffix(filepath.Base(f), ".lua"))
		}
		for i, p := range parts {
			end := len(b)
			if i+1 < len(parts) {
				end = parts[i+1][0]
			}
			name, body := string(b[p[2]:p[3]]), string(b[p[1]:end])
			writes := write.MatchString(body)
			for _, w := range functions {
				writes = writes || strings.Contains(body, w+"(")
			}
			if writes {
				functions = append(functions, name)
			}
		}
	}
	require.NotEmpty(t, functions)
	return functions, includes
}

// A9: a turn's affinity has the documented names, and only these scripts write, read and delete it.
func TestScripts_TurnAffinity_UsesContractNames(t *testing.T) {
	t.Parallel()
	keys := lua.Keys{}
	require.Equal(t, "scheduler:turn:t1", keys.Turn("t1"), "A2")
	require.Equal(t, "scheduler:session:alice:s1", keys.Session("alice", "s1"), "A3")
	uses := map[string][]string{"dispatch_job": {"HGET", "HSET"}, "finalize_turn": {"HGET", "HDEL"}}
	for _, name := range scriptNames() {
		src := strings.TrimPrefix(scriptFile(t, name), header(scriptFile(t, name)))
		var got []string
		for _, m := range regexp.MustCompile(`redis\.call\('(\w+)', (\w+), 'affinity_node_id'`).FindAllStringSubmatch(src, -1) {
			require.Equal(t, "turn", m[2], "%s: the field belongs to the turn's hash", name)
			got = append(got, m[1])
		}
		require.Equal(t, uses[name], got, "%s: commands on the affinity", name)
		require.Equal(t, len(got), strings.Count(src, "affinity_node_id"), "%s: another use of the field", name)
		require.NotRegexp(t, `EXPIRE', turn\b`, src, "%s: A1: turns have no expiry", name)
		require.NotContains(t, src, ":turn:", "%s: the turn's key is passed in", name)
	}
	dispatch := scriptFile(t, "dispatch_job")
	require.Contains(t, dispatch, "if not known and not ends then\n  redis.call('HSET', turn,",
		"A3, A4: written only if there is none, and not by a job that ends its turn")
	require.Contains(t, dispatch, "'current_turn_id', ARGV[8]", "A3: the same script writes the session's current turn")
}

// L2-L6: keys have exactly the documented names without a cell, and share one cluster slot with a cell.
func TestKeys_SchedulerNames_MatchContract(t *testing.T) {
	t.Parallel()
	for cell, prefix := range map[string]string{"": "", "c1": "{c1}:"} {
		k := lua.Keys{Cell: cell}
		for want, got := range map[string]string{
			"scheduler:node:runtime:n1":       k.Node("n1"),
			"scheduler:node:runtime:n1:pools": k.NodePools("n1"),
			"scheduler:pool:p1:members":       k.PoolMembers("p1"),
			"scheduler:session:alice:s1":      k.Session("alice", "s1"),
			"scheduler:job:j1":                k.Job("j1"),
			"scheduler:turn:t1":               k.Turn("t1"),
			"scheduler:node:updated":          k.NodeUpdated(),
			"scheduler:pool:updated":          k.PoolUpdated(),
			"scheduler:session:updated":       k.SessionUpdated(),
			"scheduler:job:created":           k.JobCreated(),
		} {
			require.Equal(t, prefix+want, got)
		}
	}
	for name, src := range lua.Sources() {
		require.NotContains(t, code(src), "scheduler:", "%s: the stem is passed in, so that keys stay in the cell", name)
		require.NotRegexp(t, `redis\.p?call\('\w+', '`, strings.ReplaceAll(strings.ReplaceAll(src, "redis.pcall('INFO', 'replication')", ""), "redis.call('TIME')", ""),
			"%s: a literal key in the script", name)
	}
}
