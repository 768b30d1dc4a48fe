package signal

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// reloadEvery is how often the file of secrets is checked for a change, while it is used.
const reloadEvery = time.Second

// Keys are the secrets of media units by the id of their API key, from a file in the format of LiveKit's key_file: one
// `id: secret` per line. A change of the file applies within reloadEvery; a file that cannot be read changes nothing.
type Keys struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex //nolint:forbidigo // held while a small file is read, at most once a second
	secrets map[string]string
	checked time.Time
	stamp   fileStamp
}

// fileStamp changes when a file does.
type fileStamp struct {
	at   time.Time
	size int64
}

// NewKeys reads the file. An empty path has no secrets.
func NewKeys(path string, logger *slog.Logger) (*Keys, error) {
	k := &Keys{path: path, log: logger}
	if path == "" {
		return k, nil
	}
	if err := k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// Secret returns the secret of a key; ok is false when the file has none.
func (k *Keys) Secret(ctx context.Context, id string) (secret string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path != "" && time.Since(k.checked) >= reloadEvery {
		if err := k.read(); err != nil {
			k.log.WarnContext(ctx, "API keys of media units not reloaded", "file", k.path, "error", err)
		}
	}
	secret, ok = k.secrets[id]
	return secret, ok
}

// read reads the file if it has changed.
func (k *Keys) read() error {
	k.checked = time.Now()
	info, err := os.Stat(k.path)
	if err != nil {
		return fmt.Errorf("API keys of media units: %w", err)
	}
	stamp := fileStamp{info.ModTime(), info.Size()}
	if stamp == k.stamp {
		return nil
	}
	b, err := os.ReadFile(k.path)
	if err != nil {
		return fmt.Errorf("API keys of media units: %w", err)
	}
	secrets := map[string]string{}
	if yaml.Unmarshal(b, &secrets) != nil { // its error quotes the file
		return fmt.Errorf("API keys of media units: %s must have one `id: secret` per line", k.path)
	}
	for id, secret := range secrets {
		if id == "" || secret == "" {
			return fmt.Errorf("API keys of media units: %s has an empty id or secret", k.path)
		}
	}
	k.secrets, k.stamp = secrets, stamp
	return nil
}
