package signalling

import (
	"errors"
	"log/slog"

	"go.yaml.in/yaml/v3"

	"berth/internal/secret"
)

// Keys are the secrets of media units by the id of their API key, from a file in the format of LiveKit's key_file: one
// `id: secret` per line. A change of the file applies within a second; a file that cannot be read changes nothing.
type Keys struct {
	secrets *secret.Cached[map[string]string]
}

// NewKeys reads the file. An empty path has no secrets.
func NewKeys(path string, logger *slog.Logger) (*Keys, error) {
	c, err := secret.NewCached(secret.NewLines("BERTH_LIVEKIT_KEYS", "", path), parseKeys, logger)
	if err != nil {
		return nil, err
	}
	return &Keys{c}, nil
}

// Secret returns the secret of a key; ok is false when the file has none.
func (k *Keys) Secret(id string) (value string, ok bool) {
	value, ok = k.secrets.Current()[id]
	return value, ok
}

func parseKeys(text string) (map[string]string, error) {
	secrets := map[string]string{}
	if yaml.Unmarshal([]byte(text), &secrets) != nil { // its error quotes the file
		return nil, errors.New("the file must have one `id: secret` per line")
	}
	for id, value := range secrets {
		if id == "" || value == "" {
			return nil, errors.New("the file has an empty id or secret")
		}
	}
	return secrets, nil
}
