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
	build   *buildinfo.BuildInfo
}

// FindBerth returns the program berth beside this one, or in PATH if there is none. Its version must be this program's: a part of the
// work that is measured, such as Redis's scripts, runs in this process.
func FindBerth(ctx context.Context, version string) (Berth, error) {
	self, err := os.Executable()
	if err != nil {
		return Berth{}, fmt.Errorf("find the path of this program: %w", err)
	}
	dir := filepath.Dir(self)
	path, err := exec.LookPath(filepath.Join(dir, "berth"))
	if err != nil {
		if path, err = exec.LookPath("berth"); err != nil {
			return Berth{}, fmt.Errorf("the program berth is neither in %s nor in PATH: put it beside berth-bench", dir)
		}
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
	return Berth{Version: version, path: path, build: build}, nil
}
