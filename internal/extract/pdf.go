// Package extract detects what uploaded files are, and reads the text of documents: PDF with poppler's pdftotext, DOCX, ODT, HTML,
// XML, mail and plain text in the usual encodings. What it cannot read completely it refuses with a reason for users.
package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// timeLimit and memoryLimit bound one run of pdftotext: files can be made to expand.
	timeLimit   = 10 * time.Second
	memoryLimit = 512 << 20
	// maxErrors is how much of its messages is read.
	maxErrors = 16 << 10
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

// Text returns the text of a document, at most limit bytes. Errors are a Reason, ErrTooLong, ErrNoTool, ErrNoLanguageData, that of
// ctx, or internal. A part of a text is an error.
func (r *Reader) Text(ctx context.Context, f Format, content []byte, limit int) (string, error) {
	switch {
	case f.pdf:
		return r.pdf(ctx, content, limit)
	case f.read == nil:
		return "", f.Reason
	}
	return f.read(content, limit)
}

// pdf returns the text of a PDF, at most limit bytes.
func (r *Reader) pdf(ctx context.Context, content []byte, limit int) (string, error) {
	if at := pdfHeader.FindIndex(content[:min(len(content), maxHead)]); at != nil {
		content = content[at[0]:]
	}
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
	out, stderr := &capped{limit: limit + 1, fail: true}, &capped{limit: maxErrors}
	cmd.Stdout, cmd.Stderr = out, stderr
	err = cmd.Run()
	switch {
	case out.full():
		return "", ErrTooLong
	case running.Err() != nil:
		return "", context.Cause(running)
	case err != nil:
		return "", fmt.Errorf("%w: pdftotext: %w: %.500s", reason(err, stderr.String()), err, stderr.String())
	}
	if err := incomplete(content, stderr.String()); err != nil {
		return "", fmt.Errorf("%w: pdftotext: %.500s", err, stderr.String())
	}
	return plausible(out.String())
}

// linearized is the length that a PDF which was prepared for the web has in its first object.
var linearized = regexp.MustCompile(`/Linearized\b[^>]*/L\s+(\d+)`)

// incomplete returns why a text is not that of the whole PDF. pdftotext exits with 0 after it has left something out.
func incomplete(content []byte, stderr string) error {
	for _, missing := range []string{"Missing language pack", "Unknown character collection", "Couldn't find '", "Could not find CMap", "Couldn't open 'nameToUnicode'"} {
		if strings.Contains(stderr, missing) {
			return ErrNoLanguageData
		}
	}
	if !bytes.Contains(content, []byte("startxref")) && !bytes.Contains(content, []byte("%%EOF")) {
		return ErrDamaged
	}
	if found := linearized.FindSubmatch(content[:min(len(content), maxHead)]); found != nil {
		if size, err := strconv.Atoi(string(found[1])); err == nil && size > len(content) {
			return ErrDamaged
		}
	}
	return nil
}

// maxUnmapped is the share of characters without a meaning from which a text is not readable.
const maxUnmapped = 0.1

// plausible returns the text of a PDF, or why it is not what a reader sees.
func plausible(text string) (string, error) {
	unmapped, characters := 0, 0
	for _, r := range text {
		if r == utf8.RuneError || unicode.Is(unicode.Co, r) || unicode.IsControl(r) && !unicode.IsSpace(r) {
			unmapped++
		}
		if !unicode.IsSpace(r) {
			characters++
		}
	}
	if float64(unmapped) > maxUnmapped*float64(characters) {
		return "", ErrUnmapped
	}
	text, err := tidy(text)
	if strings.HasPrefix(text, "Please wait...") && strings.Contains(text, "PDF viewer") {
		return "", ErrForm
	}
	return text, err
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
