package bench

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Berth is the program whose processes are measured.
type Berth struct {
	Version string
	path    string
	sim     string // path of berth-sim, which runs media units
	build   *buildinfo.BuildInfo
}

// FindBerth returns the programs berth and berth-sim beside this one, or in PATH if there are none. The version of berth must be this
// program's: a part of the work that is measured, such as Redis's scripts, runs in this process.
func FindBerth(ctx context.Context, version string) (Berth, error) {
	self, err := os.Executable()
	if err != nil {
		return Berth{}, fmt.Errorf("find the path of this program: %w", err)
	}
	dir := filepath.Dir(self)
	path, err := findProgram(dir, "berth")
	if err != nil {
		return Berth{}, err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output() //nolint:gosec // the program to be measured
	if err != nil {
		return Berth{}, fmt.Errorf("read the version of %s: %w", path, err)
	}
	if v := strings.TrimSpace(string(out)); v != version {
		return Berth{}, fmt.Errorf("%s has version %q, berth-bench %q: use both of the same version", path, v, version)
	}
	build, err := buildinfo.ReadFile(path)
	if err != nil {
		return Berth{}, fmt.Errorf("read the modules of %s: %w", path, err)
	}
	sim, err := findProgram(dir, "berth-sim")
	if err != nil {
		return Berth{}, err
	}
	return Berth{Version: version, path: path, sim: sim, build: build}, nil
}

func findProgram(dir, name string) (string, error) {
	path, err := exec.LookPath(filepath.Join(dir, name))
	if err != nil {
		path, err = exec.LookPath(name)
	}
	if err != nil {
		return "", fmt.Errorf("the program %s is neither in %s nor in PATH: put it beside berth-bench", name, dir)
	}
	return path, nil
}
