package tests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/png"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/testdocs"
)

// mistake is one mistake in the environment of a process, with what berth doctor, the API at its start and a user of that API read.
type mistake struct {
	name string   // what is wrong; empty: env
	env  []string // settings
	// under is a program with its arguments that runs berth, such as prlimit.
	under []string
	// later makes the environment wrong while the API serves.
	later func(t *testing.T)
	// doctor and process are contained in what they print; empty: they see nothing wrong.
	doctor, process string
	// user is what the response to a valid request begins with, or none or refused.
	user string
	// token returns the bearer token of the user; nil: a valid one.
	token func(t *testing.T) string
	// upload: the user uploads a file of two megabytes, instead of submitting a task.
	upload bool
}

// What a user sees without a response: the API has ended, or does not listen yet.
const (
	ends  = "no connection: the process has ended"
	waits = "no connection: the process waits"
)

var update = flag.Bool("update", false, "rewrite the table of docs/operations.md")

// FI5, FI7, FI8, FI9: berth doctor and a process at its start state what is wrong with the environment. A user of a process that starts reads of
// which kind it is, without details, and when to retry.
func TestEnvironment_Mistake_DoctorProcessAndUserSeeIt(t *testing.T) {
	s := shareStack(t)
	for _, e := range environments(newPlace(t)) {
		t.Run(e.title(), func(t *testing.T) {
			t.Parallel()
			e.check(t, s)
		})
	}
}

// The table in docs/operations.md is the one of the tests.
func TestDocs_WrongEnvironments_AreThoseOfTheTests(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| environment | `berth doctor` | log, or error of the process | user |\n| --- | --- | --- | --- |\n")
	cell := func(text string) string {
		return strings.NewReplacer("|", `\|`, "\r", `\r`, "\n", `\n`, "<", "&lt;").Replace(text)
	}
	for _, e := range append(environments(place{}), environmentsOfRoot(place{})...) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(e.title()), cell(cmp.Or(e.doctor, "ok")), cell(cmp.Or(e.process, "starts")), cell(e.user))
	}
	testdocs.RequireBlock(t, "../docs/operations.md", "environments", b.String(), *update)
}

func (e mistake) title() string {
	if e.name != "" {
		return e.name
	}
	return "`" + strings.Join(e.env, "` `") + "`"
}

// check runs berth doctor and an API, and makes a request, in the environment. Everything else is that of the stack.
func (e mistake) check(t *testing.T, base *stack) {
	s := *base
	s.tb, s.dir, s.started = t, t.TempDir(), nil
	defer s.killAll()
	env := append(append([]string{}, s.settings...), "BERTH_HTTP_ADDR=127.0.0.1:0", "HOME="+s.dir, "PATH=/none") // tools that read documents take long
	run := func(command string) *process {
		path, err := filepath.Abs("../bin/berth")
		require.NoError(t, err)
		argv := append(append([]string{}, e.under...), path, command)
		program, err := exec.LookPath(argv[0])
		require.NoError(t, err)
		return s.run(program, argv[1:], append(env, e.env...))
	}
	if e.later == nil {
		p := run("doctor")
		s.eventually("doctor to end", p.hasEnded)
		require.True(t, e.doctor != "" || p.cmd.ProcessState.Success(), "%s", p.output())
		require.True(t, says(p.output(), e.doctor), "%q:\n%s", e.doctor, p.output())
		clean(t, p.output())
	}
	api := run("api")
	defer func() { clean(t, api.output()) }()
	serving := func() string {
		found := regexp.MustCompile(`msg=serving addr=(\S+)`).FindSubmatch(api.output())
		if found == nil {
			return ""
		}
		return string(found[1])
	}
	switch e.user {
	case ends, waits:
		s.eventually("the API to state "+e.process, func() bool {
			return e.user == waits && says(api.output(), e.process) || api.hasEnded()
		})
		require.True(t, says(api.output(), e.process), "%q", e.process)
		require.Equal(t, e.user == ends, api.hasEnded())
		require.Empty(t, serving())
		return
	}
	s.eventually("the API to serve", func() bool { return serving() != "" || api.hasEnded() })
	require.NotEmpty(t, serving())
	if e.later != nil {
		e.later(t)
	}
	var seen string
	s.eventually("a user to read "+e.user, func() bool { // a dependency that fails later is noticed later
		seen = e.request(t, serving())
		return strings.HasPrefix(seen, e.user) || e.later == nil
	})
	require.True(t, strings.HasPrefix(seen, e.user), "%q", seen)
	clean(t, []byte(seen))
	for _, detail := range []string{"BERTH_", "127.0.0.1", s.dir, "/tmp", ".go:", "sqlite", "berth.db"} {
		require.NotContains(t, seen, detail)
	}
	s.eventually("the API to state "+e.process, func() bool { return says(api.output(), e.process) })
}

// clean requires that no secret is in a text.
func clean(t *testing.T, text []byte) {
	t.Helper()
	for _, hidden := range []string{secret, plantedFirst, plantedLast, "panic:", "goroutine 1 ["} {
		require.NotContains(t, string(text), hidden)
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// says reports whether a program printed a text, of which "…" leaves something out. Line ends, columns and the quotes' escapes of logs do not matter.
func says(printed []byte, text string) bool {
	rest := strings.Join(strings.Fields(strings.ReplaceAll(string(printed), `\"`, `"`)), " ")
	for part := range strings.SplitSeq(text, " … ") {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// request makes the request of the environment's user, and returns the status, the code of an error, when to retry, and its text.
func (e mistake) request(t *testing.T, addr string) string {
	t.Helper()
	path, mediaType := "/v1/tasks", "application/json"
	var body bytes.Buffer
	if e.upload {
		path = "/v1/assets"
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("file", "resume.png")
		require.NoError(t, err)
		const side = 1500
		page := image.NewGray(image.Rect(0, 0, side, side))
		require.NoError(t, (&png.Encoder{CompressionLevel: png.NoCompression}).Encode(part, page))
		require.NoError(t, form.Close())
		mediaType = form.FormDataContentType()
	} else {
		require.NoError(t, json.NewEncoder(&body).Encode(map[string]any{
			"serviceId": "career", "template": "resume_summary", "variables": map[string]string{"resume": t.Name()},
		}))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+path, &body)
	require.NoError(t, err)
	token := tokenOf(time.Now())
	if e.token != nil {
		token = e.token
	}
	req.Header.Set("Authorization", "Bearer "+token(t))
	req.Header.Set("Content-Type", mediaType)
	res, err := (&http.Client{Timeout: 30 * time.Second}).Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var problem struct{ Code, Detail string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&problem))
	seen := fmt.Sprint(res.StatusCode)
	if problem.Code != "" {
		seen += " " + problem.Code
	}
	if after := res.Header.Get("Retry-After"); after != "" {
		seen += ", Retry-After " + after
	}
	if problem.Detail != "" {
		seen += ": " + problem.Detail
	}
	return seen
}

// place is where the files of environments are. The zero place, which is that of the docs, has none.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) place { return place{t, t.TempDir()} }

// file writes a file with a mode, and returns its path.
func (p place) file(name, text string, mode os.FileMode) string {
	if p.t == nil {
		return name
	}
	path := filepath.Join(p.dir, name)
	require.NoError(p.t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(p.t, os.Chmod(path, mode))
	return path
}

// directory creates a directory with a mode, and returns its path.
func (p place) directory(name string, mode os.FileMode) string {
	if p.t == nil {
		return name
	}
	path := filepath.Join(p.dir, name)
	require.NoError(p.t, os.Mkdir(path, 0o700))
	require.NoError(p.t, os.Chmod(path, mode))        //nolint:gosec // a directory without rights is the test
	p.t.Cleanup(func() { _ = os.Chmod(path, 0o700) }) //nolint:gosec // so that it can be removed
	return path
}
