package llm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	keyfile "berth/internal/secret" // this package and its tests have secrets
)

// Validate returns an error for keys that cannot be sent and for files that cannot be used. It names the setting.
func (s Settings) Validate() error {
	names := slices.Concat(slices.Collect(maps.Keys(s.Keys)), slices.Collect(maps.Keys(s.KeyFiles)))
	slices.Sort(names)
	var wrong []error
	for _, name := range slices.Compact(names) {
		from := s.single(name)
		err := from.Validate()
		if err == nil {
			_, err = read(from)
		}
		wrong = append(wrong, err)
	}
	err := s.keyList().Validate()
	if err == nil {
		_, err = s.several()
	}
	return errors.Join(append(wrong, err)...)
}

// key returns the current API key of a setting, empty where there is none, and the setting in use.
func (s Settings) key(name string) (key, setting string, err error) {
	keys, err := s.several()
	if err != nil {
		return "", s.keyList().Setting(), err
	}
	if key := keys[name]; key != "" {
		return key, fmt.Sprintf("%s in %s", name, s.keyList().Setting()), nil
	}
	from := s.single(name)
	key, err = read(from)
	return key, from.Setting(), err
}

func (s Settings) single(name string) keyfile.Secret {
	return keyfile.New(name, s.Keys[name], s.KeyFiles[name])
}

func (s Settings) keyList() keyfile.Secret {
	return keyfile.NewLines("BERTH_PROVIDER_KEYS", s.KeyList, s.KeysFile)
}

// several returns the keys of KeyList or KeysFile by the names of their settings. Empty lines and those that begin with # are skipped; export and
// quotes are accepted, as a shell does.
func (s Settings) several() (map[string]string, error) {
	from := s.keyList()
	text, err := from.Read()
	if err != nil {
		return nil, err
	}
	if !from.FromFile() {
		text = strings.ReplaceAll(text, ";", "\n")
	}
	keys := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, key, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(strings.TrimPrefix(name, "export ")); !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, from.Invalid("line %d must be NAME=key, such as OPENAI_API_KEY=…", n)
		}
		if key = strings.TrimSpace(key); len(key) > 1 && strings.ContainsAny(key[:1], `"'`) && key[0] == key[len(key)-1] {
			key = key[1 : len(key)-1]
		}
		if keys[name], err = checkKey(from, key); err != nil {
			return nil, from.Invalid("line %d has characters that are not allowed in an API key", n)
		}
	}
	return keys, nil
}

func read(from keyfile.Secret) (string, error) {
	key, err := from.Read()
	if err != nil {
		return "", err
	}
	return checkKey(from, key)
}

// checkKey returns a key without spaces around it.
func checkKey(from keyfile.Secret, key string) (string, error) {
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", from.Invalid("contains characters that are not allowed in an API key")
	}
	return key, nil
}
