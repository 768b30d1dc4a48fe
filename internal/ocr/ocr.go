// Package ocr reads the text of images with Tesseract.
package ocr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrNoTesseract means that this machine cannot read images; its text names the packages to install.
var ErrNoTesseract = errors.New("tesseract is not installed: install tesseract-ocr with the languages eng and chi_sim " +
	"(Debian: apt-get install tesseract-ocr tesseract-ocr-eng tesseract-ocr-chi-sim)")

// Reader reads the text of a PNG or JPEG.
type Reader func(ctx context.Context, image []byte) (string, error)

// Tesseract returns a reader that runs the program at path (found on PATH if it is a bare name) for English and simplified
// Chinese, for at most limit per image and with at most parallel concurrent images.
func Tesseract(path string, limit time.Duration, parallel int) Reader {
	slots := make(chan struct{}, parallel)
	return func(ctx context.Context, image []byte) (string, error) {
		bin, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%w (%w)", ErrNoTesseract, err)
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return "", fmt.Errorf("wait to read the image: %w", context.Cause(ctx))
		}
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no text after %s: %w", limit, context.DeadlineExceeded))
		defer cancel()
		// Chinese first: with English first, Tesseract separates all Chinese characters by spaces. One column:
		// otherwise the page segmentation treats a comma as a separate column.
		cmd := exec.CommandContext(ctx, bin, "stdin", "stdout", "-l", "chi_sim+eng", "--psm", "4") //nolint:gosec // all arguments are fixed
		cmd.Env = append(cmd.Environ(), "OMP_THREAD_LIMIT=1")                                      // one thread per image is faster under load
		cmd.WaitDelay = time.Second
		cmd.Stdin = bytes.NewReader(image)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				return "", fmt.Errorf("tesseract: %w", context.Cause(ctx))
			}
			message := strings.TrimSpace(stderr.String())
			if strings.Contains(message, "Failed loading language") {
				return "", fmt.Errorf("%w (%s)", ErrNoTesseract, message)
			}
			return "", fmt.Errorf("tesseract: %w: %s", err, message)
		}
		return tidy(out.String()), nil
	}
}

var (
	misreadBullet = regexp.MustCompile(`(?m)^ *(?:[¢*«»@°+•·○●▪–—-]|e ) *(\S)`)
	blanks        = regexp.MustCompile(`[ \t\f\x{00a0}\x{3000}]+`)
	blankInCJK    = regexp.MustCompile(`([\p{Han}，。、；：！？（）]) ([\p{Han}，。、；：！？（）,;:.])`)
)

// tidy repairs typical OCR output: spaces between Chinese characters, misread bullets and blank lines.
func tidy(text string) string {
	text = blanks.ReplaceAllString(text, " ")
	for range 2 { // matches do not overlap
		text = blankInCJK.ReplaceAllString(text, "$1$2")
	}
	text = misreadBullet.ReplaceAllString(text, "• $1")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n")
}
