package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// ErrNoTesseract means that this machine cannot read images; its text names the packages to install.
var ErrNoTesseract = errors.New("tesseract is not installed: install tesseract-ocr with the languages eng and chi_sim " +
	"(Debian: apt-get install tesseract-ocr tesseract-ocr-eng tesseract-ocr-chi-sim)")

// OCR reads the text of a PNG or JPEG.
type OCR func(ctx context.Context, image []byte) (string, error)

// Tesseract returns an OCR that runs the program at path (found on PATH if it is a bare name) for English and simplified
// Chinese, for at most limit per image and with at most parallel concurrent images.
func Tesseract(path string, limit time.Duration, parallel int) OCR {
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
	misreadBullet = regexp.MustCompile(`^(?:[¢*«»@°+•·○●▪]|e(?: \p{Lu})|[-–—])\s*`)
	spaces        = regexp.MustCompile(`[ \t\x{00a0}\x{3000}]+`)
	bareCommas    = regexp.MustCompile(`(\D)([,;:])\s*(\D|$)`)
)

// tidy repairs typical OCR output: spaces between Chinese characters, misread bullets, half-width punctuation in Chinese
// lines, blank lines, and line breaks within an English sentence.
func tidy(text string) string {
	var lines []string
	for raw := range strings.Lines(text) {
		l := joinCJK(strings.TrimSpace(spaces.ReplaceAllString(strings.ReplaceAll(raw, "\f", ""), " ")))
		if l == "" {
			continue
		}
		if m := misreadBullet.FindString(l); m != "" && len(m) < len(l) {
			if strings.HasPrefix(m, "e ") {
				m = "e "
			}
			l = "• " + strings.TrimSpace(l[len(m):])
		}
		if strings.ContainsFunc(l, isCJK) {
			l = fullWidth(l)
		}
		if n := len(lines); n > 0 && continues(lines[n-1], l) {
			lines[n-1] += " " + l
			continue
		}
		lines = append(lines, l)
	}
	return strings.Join(lines, "\n")
}

// joinCJK removes spaces beside Chinese characters and punctuation, except between a character and a Latin word.
func joinCJK(s string) string {
	in := []rune(s)
	wide := func(r rune) bool {
		return isCJK(r) || strings.ContainsRune("，。、；：！？（）【】《》“”", r)
	}
	punct := func(r rune) bool { return wide(r) && !isCJK(r) }
	var out []rune
	for i, r := range in {
		if r == ' ' && i > 0 && i+1 < len(in) {
			before, after := in[i-1], in[i+1]
			if wide(before) && wide(after) || punct(before) || punct(after) ||
				isCJK(before) && strings.ContainsRune(",;:.", after) {
				continue
			}
		}
		out = append(out, r)
	}
	return string(out)
}

func fullWidth(l string) string {
	wide := strings.NewReplacer(",", "，", ";", "；", ":", "：")
	return bareCommas.ReplaceAllStringFunc(l, func(m string) string {
		p := bareCommas.FindStringSubmatch(m)
		return p[1] + wide.Replace(p[2]) + p[3]
	})
}

// continues reports whether next is the rest of the sentence that before begins.
func continues(before, next string) bool {
	first := []rune(next)[0]
	last := []rune(before)[len([]rune(before))-1]
	return unicode.IsLower(first) && !isCJK(last) && (unicode.IsLetter(last) || last == ',') && len(before) > 40
}
