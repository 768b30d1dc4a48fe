package tests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/freeport"
	"berth/internal/testlivekit"
)

// notRun are programs of which the documentation shows commands that the test does not run: they get a program that does nothing,
// so that the shell parses and expands their arguments. make run is what the test itself does, with bin/berth-dev and simulated
// media units, of which pkill would end none.
var notRun = []string{"apt-get", "docker", "helm", "kubectl", "make", "pkill", "temporal"}

// X1, X2: every command of the documentation works when it is copied, in the order of the page, into one shell in the directory
// of a development server that was started as the README says. See testdata/docs for commands that do not end.
func TestDocs_Commands_Succeed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	run := 0
	for _, file := range append([]string{"../README.md", "../README.zh-CN.md"}, files...) {
		blocks := commandBlocks(t, file)
		for _, b := range blocks {
			if b.skipped != "" {
				t.Logf("%s not run: %s", b.at, b.skipped)
				continue
			}
			run++
		}
		if len(blocks) > 0 {
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				runBlocks(t, blocks, namedFiles(t, file))
			})
		}
	}
	t.Logf("%d blocks are run; programs that are replaced: %s", run, strings.Join(notRun, ", "))
}

// commandBlock is a block of shell commands, with the reason why it is not run if its comment in the page states one.
type commandBlock struct{ at, commands, skipped string }

var skipComment = regexp.MustCompile(`^\s*<!-- not run: (.+) -->$`)

// commandBlocks returns the blocks of a page that are marked as shell commands.
func commandBlocks(t *testing.T, file string) []commandBlock {
	t.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // a file of this repository
	require.NoError(t, err)
	var blocks []commandBlock
	var indent, skipped string
	inside, shell := false, false
	for i, line := range strings.Split(string(text), "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			var language string
			indent, language, _ = strings.Cut(line, "```")
			inside, shell = true, language == "sh" || language == "bash" || language == "console"
			if shell {
				blocks = append(blocks, commandBlock{at: fmt.Sprintf("%s:%d", filepath.Base(file), i+1), skipped: skipped})
			} else {
				require.Empty(t, skipped, "%s:%d: the comment does not precede commands", file, i+1)
			}
			skipped = ""
		case fence:
			inside = false
		case inside && shell:
			blocks[len(blocks)-1].commands += strings.TrimPrefix(line, indent) + "\n"
		case !inside:
			if m := skipComment.FindStringSubmatch(line); m != nil {
				skipped = m[1]
			}
		}
	}
	require.False(t, inside, "%s has an open block", file)
	return blocks
}

// namedFiles returns the files that a page shows, by the path that stands before each.
func namedFiles(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page) //nolint:gosec // a file of this repository
	require.NoError(t, err)
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^`([a-z][a-z0-9_./-]*)`:\n\n```[a-z]*\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		files[m[1]] = m[2]
	}
	return files
}

// runBlocks runs blocks in one shell, in the directory of a development server of their own, with the files of their page.
func runBlocks(t *testing.T, blocks []commandBlock, files map[string]string) {
	t.Helper()
	s := &stack{tb: t, dir: t.TempDir()}
	for name, text := range files {
		name = filepath.Join(s.dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	t.Cleanup(s.killAll)
	ports, err := freeport.Find(3)
	require.NoError(t, err)
	// The pages have fixed ports of LiveKit.
	local := strings.NewReplacer("7880", strconv.Itoa(ports[0]), "7881", strconv.Itoa(ports[1]), "7882", strconv.Itoa(ports[2]))
	fillDirectory(t, s.dir, local)

	settings := []string{"BERTH_METRICS_ADDR=off", "BERTH_LIVEKIT_KEYS_FILE=livekit.keys", "BERTH_MEDIA_HOSTS=127.0.0.1", "BERTH_LIVEKIT_SERVER=none"}
	for _, name := range []string{"HTTP", "TEMPORAL", "TEMPORAL_UI", "REDIS", "MODEL"} {
		settings = append(settings, "BERTH_"+name+"_ADDR=127.0.0.1:0")
	}
	dev := s.start("berth-dev", nil, settings)
	s.eventually("the development server to be ready", func() bool { return strings.Contains(string(dev.output()), "Ctrl-C stops everything.") })
	variables := regexp.MustCompile(`(?m)^ *(export BERTH_URL=.*)$`).FindSubmatch(dev.output())
	require.NotNil(t, variables, "the development server printed no variables:\n%s", dev.output())

	output, err := runShell(t, s.dir, shellScript(t, blocks, string(variables[1]), local))
	t.Logf("%s", output)
	require.NoError(t, err, "the last command of the output failed")
	stopAgents(t, s)
	require.True(t, dev.stop(maxWait), "the development server did not stop")
}

// fillDirectory writes what the commands need in their directory: files of the repository, and programs that are replaced.
func fillDirectory(t *testing.T, dir string, local *strings.Replacer) {
	t.Helper()
	for _, name := range []string{"run", "programs", "examples", "bin/tools"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	links := map[string]string{
		"deploy": "../deploy", "scripts": "../scripts",
		"programs/curl": "testdata/docs/curl", "programs/berth": "testdata/docs/berth", "bin/berth": "testdata/docs/berth",
		"bin/tools/livekit-server-" + testlivekit.Version: "testdata/docs/berth",
	}
	examples, err := os.ReadDir("../examples")
	require.NoError(t, err)
	for _, e := range examples {
		links["examples/"+e.Name()] = "../examples/" + e.Name()
	}
	delete(links, "examples/livekit.yaml")
	for _, program := range notRun {
		links["programs/"+program] = "/bin/true"
	}
	for name, target := range links {
		target, err := filepath.Abs(target)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	livekit, err := os.ReadFile("../examples/livekit.yaml")
	require.NoError(t, err)
	for name, content := range map[string]string{
		"examples/livekit.yaml": local.Replace(string(livekit)), "livekit.keys": "mykey: my-secret-of-at-least-32-characters\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// shellScript joins the blocks, each preceded by its place. The variables that the server printed are set where the page first
// uses them, as a reader would.
func shellScript(t *testing.T, blocks []commandBlock, variables string, local *strings.Replacer) string {
	t.Helper()
	var script strings.Builder
	script.WriteString("PATH=$PWD/programs:$PATH\n")
	set := false
	for _, b := range blocks {
		check := exec.Command("bash", "-n") //nolint:noctx // ends immediately
		check.Stdin = strings.NewReader(b.commands)
		out, err := check.CombinedOutput()
		require.NoError(t, err, "%s: %s", b.at, out)
		if b.skipped != "" {
			continue
		}
		if !set && (strings.Contains(b.commands, "$BERTH_URL") || strings.Contains(b.commands, "$BERTH_TOKEN")) {
			set = true
			script.WriteString(variables + "\n")
		}
		fmt.Fprintf(&script, "echo '=== %s'\nset -v\n%sset +v\n", b.at, local.Replace(b.commands))
	}
	return script.String()
}

// runShell runs a script in the directory, and returns the commands with their output. The error is that of the first command
// that fails.
func runShell(t *testing.T, dir, script string) (output []byte, err error) {
	t.Helper()
	file := filepath.Join(dir, "commands.sh")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	curl, err := exec.LookPath("curl")
	require.NoError(t, err, "curl is not installed")
	berth, err := filepath.Abs("../bin/berth")
	require.NoError(t, err)
	out, err := os.Create(filepath.Join(dir, "output")) //nolint:gosec // the test's own directory
	require.NoError(t, err)
	defer func() { _ = out.Close() }()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", file) //nolint:gosec // the commands of the documentation
	shell.Dir, shell.Stdout, shell.Stderr = dir, out, out
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	shell.Env = append(os.Environ(), "RUN_DIR="+filepath.Join(dir, "run"), "REAL_CURL="+curl, "REAL_BERTH="+berth,
		"REAL_LIVEKIT="+testlivekit.Binary(t), "BERTH=bin/berth", "BERTH_METRICS_ADDR=off")
	require.NoError(t, shell.Start())
	t.Cleanup(func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }) // agents continue until the test ends
	failed := shell.Wait()
	output, err = os.ReadFile(out.Name())
	require.NoError(t, err)
	return output, failed
}

// stopAgents stops the servers that the commands started, and checks that they end without an error.
func stopAgents(t *testing.T, s *stack) {
	t.Helper()
	running, err := filepath.Glob(filepath.Join(s.dir, "run", "*.pid"))
	require.NoError(t, err)
	for _, file := range running {
		text, err := os.ReadFile(file) //nolint:gosec // the test's own directory
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGTERM), "an agent ended before the end of the page")
		log := strings.TrimSuffix(file, ".pid")
		var status []byte
		s.eventually("an agent to stop", func() bool {
			status, err = os.ReadFile(log + ".status")
			return err == nil && len(status) > 0
		})
		output, err := os.ReadFile(log) //nolint:gosec // the test's own directory
		require.NoError(t, err)
		require.Equal(t, "0\n", string(status), "%s", output)
	}
}
