// Package devserver reads and writes the files by which a development server can be found in its data directory: its
// addresses and process id, its lock and the secret of its tokens.
package devserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNone means that no development server has left its addresses in the data directory.
var ErrNone = errors.New("no development server")

// ErrStopped means that the development server whose addresses are in the data directory does not run any more.
var ErrStopped = errors.New("the development server has stopped")

// Ready is the content of ready.json, which exists while all parts of a development server are up. Addresses of parts
// that do not run are empty.
type Ready struct {
	PID            int      `json:"pid"`
	Parts          []string `json:"parts"`
	BootMs         int64    `json:"bootMs"`
	HTTPAddr       string   `json:"httpAddr,omitempty"`
	TemporalAddr   string   `json:"temporalAddr,omitempty"`
	TemporalUIAddr string   `json:"temporalUiAddr,omitempty"`
	RedisAddr      string   `json:"redisAddr,omitempty"`
	ModelAddr      string   `json:"modelAddr,omitempty"`
	Database       string   `json:"database"`
	TemplatesDir   string   `json:"templatesDir,omitempty"`
	RoutingFile    string   `json:"routingFile,omitempty"`
}

// SecretFile returns the file with the secret of the server's tokens.
func SecretFile(dir string) string { return filepath.Join(dir, "auth-secret") }

// ReadyFile returns the file that Ready describes.
func ReadyFile(dir string) string { return filepath.Join(dir, "ready.json") }

// lockFile is locked while a server uses the directory, and contains its process id.
func lockFile(dir string) string { return filepath.Join(dir, "lock") }

// Claim creates the data directory and locks it for this process. The kernel releases the lock when the process ends.
// The error names the process that holds the lock.
func Claim(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(lockFile(dir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(lockFile(dir)) // only for the message
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the data directory %s is in use by process %s: stop it, or set BERTH_DATA_DIR and other ports for a second server",
				dir, strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return func() { _ = f.Close() }, nil
}

// claimed reports whether a process has locked the directory.
func claimed(dir string) (bool, error) {
	f, err := os.Open(lockFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	default:
		return false, nil
	}
}

// Write replaces ready.json atomically, readable for its owner only.
func (r Ready) Write(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode readiness: %w", err)
	}
	draft := ReadyFile(dir) + ".new"
	if err := os.WriteFile(draft, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write readiness: %w", err)
	}
	if err := os.Rename(draft, ReadyFile(dir)); err != nil {
		return fmt.Errorf("write readiness: %w", err)
	}
	return nil
}

// RemoveReady removes ready.json if it exists.
func RemoveReady(dir string) error {
	if err := os.Remove(ReadyFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove readiness: %w", err)
	}
	return nil
}

// Running returns the addresses of the development server that runs in dir. It returns ErrNone without ready.json, and
// ErrStopped if no process has locked the directory: a server that was killed leaves its ready.json.
func Running(dir string) (Ready, error) {
	b, err := os.ReadFile(ReadyFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return Ready{}, ErrNone
	}
	if err != nil {
		return Ready{}, fmt.Errorf("read readiness: %w", err)
	}
	var r Ready
	if err := json.Unmarshal(b, &r); err != nil {
		return Ready{}, fmt.Errorf("%s: %w", ReadyFile(dir), err)
	}
	running, err := claimed(dir)
	if err != nil {
		return Ready{}, err
	}
	if !running {
		return r, ErrStopped
	}
	return r, nil
}
