// Package secret reads passwords and keys: the value of a setting, or a file that is read again at each use, so that a new value
// needs no restart. Every error names the setting and never has the value.
package secret

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"berth/internal/setting"
)

// FileSuffix ends the name of a setting that names a file with the value of another one.
const FileSuffix = "_FILE"

// maxBytes limits a file: a larger one is another file.
const maxBytes = 1 << 20

// Secret is the value of a setting, or a file with it. The zero value is not set.
type Secret struct {
	setting, value, file string
	lines                bool
}

// New returns the secret of a setting such as BERTH_REDIS_PASSWORD, whose file is named by BERTH_REDIS_PASSWORD_FILE. It has one line.
func New(name, value, file string) Secret {
	return Secret{setting: name, value: value, file: file}
}

// NewLines is New for a secret whose file may have several lines.
func NewLines(name, value, file string) Secret {
	return Secret{setting: name, value: value, file: file, lines: true}
}

// IsSet reports whether there is a value or a file.
func (s Secret) IsSet() bool { return s.value != "" || s.file != "" }

// FromFile reports whether the secret is read from a file.
func (s Secret) FromFile() bool { return s.file != "" }

// Setting returns the name of the setting in use.
func (s Secret) Setting() string {
	if s.file != "" {
		return s.setting + FileSuffix
	}
	return s.setting
}

// Validate returns an error if the secret has both a value and a file, or if its file cannot be used.
func (s Secret) Validate() error {
	if s.value != "" && s.file != "" {
		return s.Invalid("set one of %s and %s, not both", s.setting, s.Setting())
	}
	_, err := s.Read()
	return err
}

// Read returns the secret without the space around it, empty if it is not set. Errors are *Error.
func (s Secret) Read() (string, error) {
	kind := setting.Secret
	if s.lines {
		kind = setting.Lines
	}
	if s.file == "" {
		text, err := setting.Clean(kind, s.value)
		if err != nil {
			return "", s.Invalid("%s", err)
		}
		return text, nil
	}
	text, err := readFile(s.file)
	if err == nil && !s.lines && strings.ContainsAny(setting.Trim(text), "\r\n") {
		err = errors.New("the file has more than one line")
	}
	if err == nil {
		text, err = setting.Clean(kind, text)
	}
	if err == nil && text == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return "", s.fail(err)
	}
	return text, nil
}

func (s Secret) fail(err error) error {
	return &Error{Setting: s.Setting(), Problem: "the secret cannot be read", Err: err}
}

// Invalid returns an *Error for a secret that was read and has a wrong form. The problem must not contain it.
func (s Secret) Invalid(format string, args ...any) error {
	return &Error{Setting: s.Setting(), Problem: fmt.Sprintf(format, args...)}
}

// Refused returns an *Error for a secret that a server refused, with the server's error. An *Error is returned as it is.
func (s Secret) Refused(err error) error {
	if _, named := errors.AsType[*Error](err); named {
		return err
	}
	problem := "the server refused this secret"
	if !s.IsSet() {
		problem = "the server requires this secret, which is not set"
	}
	return &Error{Setting: s.Setting(), Problem: problem, Err: err}
}

// Error is a secret that cannot be used. The operator has to correct its setting, or the server's.
type Error struct {
	Setting string
	Problem string
	Err     error // nil: Problem is all there is
}

func (e *Error) Error() string {
	text := e.Setting + ": " + e.Problem
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Named reports whether an error is one of a secret, whose text names the setting.
func Named(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// readFile returns the text of a file.
func readFile(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // the operator's own path
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s must be a regular file, because it is read again", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	switch {
	case err != nil:
		return "", err
	case len(b) > maxBytes:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxBytes)
	case !utf8.Valid(b) || strings.ContainsRune(string(b), 0):
		return "", fmt.Errorf("%s must be a text in UTF-8", path)
	}
	return string(b), nil
}
