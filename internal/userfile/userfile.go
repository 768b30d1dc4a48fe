// Package userfile reads files that a user names into memory.
package userfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxSettings is the limit for files of settings, such as a routing file or certificates.
const MaxSettings = 16 << 20

// stdin is read also from a terminal.
const stdin = "/dev/stdin"

// Read returns the content of a file, of at most limit bytes: a regular file, a pipe, or standard input as /dev/stdin. It reads nothing of a file
// that is larger, and no more than the limit of what has no size.
func Read(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened: that alone has an effect on some devices
	if missing, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &fs.PathError{Op: "open", Path: missing.Path, Err: missing.Err} // whatever the order of the calls
	}
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, fmt.Errorf("%s is a directory: name a file", path)
	case mode.IsRegular() && info.Size() > limit:
		return nil, fmt.Errorf("%s has %d bytes, more than the limit of %d", path, info.Size(), limit)
	case !mode.IsRegular() && mode.Type() != fs.ModeNamedPipe && path != stdin:
		return nil, fmt.Errorf("%s is neither a regular file nor a pipe", path)
	}
	f, err := os.Open(path) //nolint:gosec // the user's own file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("%s has more bytes than the limit of %d", path, limit)
	}
	return b, nil
}
