package deploy_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/stretchr/testify/require"
)

// instructions returns the lines of the Dockerfile as fields, with continued lines joined and without comments.
func instructions(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "Dockerfile"))
	require.NoError(t, err)
	var all [][]string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			all = append(all, fields)
		}
	}
	return all
}

// stages returns the names of the Dockerfile's stages.
func stages(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, line := range instructions(t) {
		if line[0] == "FROM" {
			require.Equal(t, "AS", line[2])
			names = append(names, line[3])
		}
	}
	return names
}

func TestDockerfile_Stages_AreComplete(t *testing.T) {
	t.Parallel()
	args, before := map[string]string{}, []string{}
	users := map[string]string{}
	for _, line := range instructions(t) {
		switch line[0] {
		case "ARG":
			name, value, _ := strings.Cut(line[1], "=")
			args[name] = value
		case "FROM":
			image := regexp.MustCompile(`\$\{(\w+)\}`).ReplaceAllStringFunc(line[1], func(v string) string { return args[strings.Trim(v, "${}")] })
			if strings.Contains(image, ":") {
				require.Regexp(t, `:(\d+\.\d+\.\d+-)?bookworm(-\d{8})?(-slim)?$`, image, "an exact version")
			} else {
				require.Contains(t, before, image, "an earlier stage")
			}
			before = append(before, line[3])
		case "COPY":
			sources := line[1 : len(line)-1]
			if from, ok := strings.CutPrefix(line[1], "--from="); ok {
				require.Contains(t, before, from)
				continue
			}
			for _, source := range sources {
				require.NoError(t, exists("..", source))
			}
		case "USER":
			users[before[len(before)-1]] = line[1]
		}
	}
	require.Equal(t, map[string]string{"apertium": "10001", "bench": "10001", "berth": "10001", "sim": "10001"}, users, "the final stages run without privileges")
	for arg, module := range map[string]string{"GO_VERSION": "../go.mod"} {
		text, err := os.ReadFile(module)
		require.NoError(t, err)
		minimum := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)[1]
		require.True(t, strings.HasPrefix(args[arg], string(minimum)+"."), "go.mod requires Go %s", minimum)
	}
}

// TestDockerignore_FilesOfTheBuild_AreSent compares .dockerignore with the files that the Go build and the page's build read.
func TestDockerignore_FilesOfTheBuild_AreSent(t *testing.T) {
	t.Parallel()
	f, err := os.Open(filepath.Join("..", ".dockerignore"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	patterns, err := ignorefile.ReadAll(f)
	require.NoError(t, err)
	ignore, err := patternmatcher.New(patterns)
	require.NoError(t, err)
	ignored := func(file string) bool {
		yes, err := ignore.MatchesOrParentMatches(file)
		require.NoError(t, err)
		return yes
	}

	root, err := filepath.Abs("..")
	require.NoError(t, err)
	checked := 0
	for module, program := range map[string]string{".": "./cmd/...", "dev": "./sim"} {
		checked += sent(t, root, module, program, ignored)
	}
	require.Greater(t, checked, 200)
	for _, file := range []string{
		"go.mod", "go.sum", "dev/go.mod", "dev/go.sum", "api/console/package.json", "api/console/src/main.ts", "api/console/vite.config.ts",
	} {
		require.NoError(t, exists(root, file))
		require.False(t, ignored(file), "%s is needed by the build", file)
	}
	for _, file := range []string{
		".env", ".git/config", "bin/berth", "api/console/node_modules/svelte/package.json", "deploy/compose_test.go", "dev/main.go",
	} {
		require.True(t, ignored(file), "%s must not be in an image", file)
	}
}

// sent requires that no file which the build of a program needs is ignored, and returns how many it needs.
func sent(t *testing.T, root, module, program string, ignored func(file string) bool) (checked int) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,GoFiles,EmbedFiles", program)
	list.Dir = filepath.Join(root, module)
	out, err := list.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, list.Start())
	for packages := json.NewDecoder(out); ; {
		var p struct {
			Dir                 string
			GoFiles, EmbedFiles []string
		}
		err := packages.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		dir, err := filepath.Rel(root, p.Dir)
		require.NoError(t, err)
		if strings.HasPrefix(dir, "..") || strings.HasPrefix(dir, "bin") { // of another module
			continue
		}
		for _, file := range append(p.GoFiles, p.EmbedFiles...) {
			file = path.Join(filepath.ToSlash(dir), file)
			if strings.HasPrefix(file, "api/console/dist/") { // built in the image
				continue
			}
			require.False(t, ignored(file), "%s is needed by the build", file)
			checked++
		}
	}
	require.NoError(t, list.Wait())
	return checked
}
