// Package extract reads the text of uploaded files: PDF with poppler's pdftotext, and DOCX.
package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// Reasons why a file has no readable text. They are shown to the user who uploaded it.
var (
	ErrEncrypted = errors.New("the file is protected by a password: remove the protection")
	ErrNoText    = errors.New("the file contains no text: upload scanned pages as images")
	ErrDamaged   = errors.New("the file is damaged or incomplete")
	ErrTooLong   = errors.New("the text of the file is too long")
	ErrTooSlow   = errors.New("the file is too complex: upload its text instead")
)

// ErrNoTool means that this machine cannot read PDF files; its text names the package to install.
var ErrNoTool = errors.New("pdftotext is not installed (Debian: apt-get install poppler-utils)")

const (
	// timeLimit and memoryLimit bound one run of pdftotext: files can be made to expand.
	timeLimit   = 10 * time.Second
	memoryLimit = 512 << 20
	// parallel limits concurrent runs in this process.
	parallel = 2
)

// Reader reads files with at most parallel concurrent runs of pdftotext.
type Reader struct {
	program string
	slots   chan struct{}
}

// NewReader returns a reader that runs the program at path, found on PATH if it is a bare name.
func NewReader(path string) *Reader {
	return &Reader{program: path, slots: make(chan struct{}, parallel)}
}

// PDF returns the text of a PDF, at most limit bytes. Errors other than those of this package and of ctx are internal.
func (r *Reader) PDF(ctx context.Context, content []byte, limit int) (string, error) {
	program, err := exec.LookPath(r.program)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoTool, err)
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	running, cancel := context.WithTimeoutCause(ctx, timeLimit, ErrTooSlow)
	defer cancel()
	// The shell sets the limits, which cannot be set for a child before it starts. ulimit counts in KiB and seconds.
	// Systems other than Linux may not limit memory.
	script := fmt.Sprintf(`ulimit -v %d 2>/dev/null; ulimit -t %d && exec "$0" -enc UTF-8 -eol unix -nopgbrk - -`,
		memoryLimit>>10, int(timeLimit.Seconds()))
	cmd := exec.CommandContext(running, "/bin/sh", "-c", script, program) //nolint:gosec // the program is the operator's
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	cmd.Stdin = bytes.NewReader(content)
	out, stderr := &capped{limit: limit + 1, fail: true}, &capped{limit: 500}
	cmd.Stdout, cmd.Stderr = out, stderr
	err = cmd.Run()
	switch {
	case out.full():
		return "", ErrTooLong
	case running.Err() != nil:
		return "", context.Cause(running)
	case err != nil:
		return "", fmt.Errorf("%w: pdftotext: %w: %s", reason(err, stderr.String()), err, stderr.String())
	}
	return tidy(out.String())
}

// reason translates a failure of pdftotext.
func reason(err error, stderr string) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return ErrTooSlow // killed at a limit
		}
	}
	switch {
	case strings.Contains(stderr, "ncorrect password"), strings.Contains(stderr, "opying of text"):
		return ErrEncrypted
	case strings.Contains(stderr, "emory"), strings.Contains(stderr, "bad_alloc"):
		return ErrTooSlow
	}
	return ErrDamaged
}

// capped keeps the first bytes of an output. If fail is set it fails at the limit, which ends the program.
type capped struct {
	kept  []byte
	limit int
	fail  bool
}

var errFull = errors.New("output exceeds its limit")

// Write stores the bytes within the limit.
func (c *capped) Write(b []byte) (int, error) {
	n := min(len(b), c.limit-len(c.kept))
	c.kept = append(c.kept, b[:n]...)
	if n < len(b) && c.fail {
		return n, errFull
	}
	return len(b), nil
}

func (c *capped) full() bool { return len(c.kept) >= c.limit }

func (c *capped) String() string { return string(c.kept) }

// tidy returns valid text without control characters and repeated blank lines, or ErrNoText.
func tidy(text string) (string, error) {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r != utf8.RuneError && !unicode.IsControl(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, ""))
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		if line != "" || len(lines) > 0 && lines[len(lines)-1] != "" {
			lines = append(lines, line)
		}
	}
	text = strings.TrimSpace(strings.Join(lines, "\n"))
	if text == "" {
		return "", ErrNoText
	}
	return text, nil
}
