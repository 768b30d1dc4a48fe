package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"berth/client"
	"berth/internal/agent"
	"berth/internal/declaration"
	"berth/internal/setting"
	"berth/internal/userfile"
)

type applyCommand struct {
	agent.Server `embed:""`
	File         string `short:"f" required:"" help:"File to apply; - for standard input." placeholder:"FILE"`
	DryRun       bool   `help:"Check the file, also on the server, and print the same lines, but change nothing." name:"dry-run"`
	Secrets      string `help:"Write the secret of each new API key to a file in this directory, instead of printing it." type:"path" placeholder:"DIRECTORY"`
}

// Help is called by kong.
func (c *applyCommand) Help() string {
	return "The file is a routing file that may also have teams and apps with their keys and budgets; docs/operations.md describes it. " +
		"Its objects get exactly the settings that it states: a setting that it leaves out has its default. Objects that it does not have are left alone, " +
		"but the routing is one object: models that a file with models does not have are removed. All mistakes are printed before anything is changed."
}

// readFile reads a file of settings, - for standard input, and returns what messages call it.
func readFile(path string) (name string, src []byte, err error) {
	name = path
	if path == "-" {
		path, name = "/dev/stdin", "standard input"
	}
	if src, err = userfile.Read(path, userfile.MaxSettings); err != nil {
		return name, nil, setting.Wrong(fmt.Errorf("read the file: %w", err))
	}
	return name, src, nil
}

// Run applies the file.
func (c *applyCommand) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout, os.Stderr)
}

func (c *applyCommand) run(ctx context.Context, api *client.Client, out, info io.Writer) error {
	name, src, err := readFile(c.File)
	if err != nil {
		return err
	}
	file, err := declaration.Parse(name, src)
	if err != nil {
		return setting.Wrong(err)
	}
	plan, err := planApply(ctx, api, file, c.Secrets, time.Now())
	if err != nil {
		return err
	}
	for _, text := range plan.warnings {
		fmt.Fprintln(out, "warning:", printable(text))
	}
	count := map[string]int{}
	if !c.DryRun {
		for _, leave := range plan.leaving {
			if err := leave(ctx); err != nil {
				return applyError("members that move to another team or application", err, count)
			}
		}
	}
	for _, s := range plan.steps {
		note := ""
		if !c.DryRun && s.do != nil {
			if note, err = s.do(ctx); err != nil {
				return applyError(s.object, err, count)
			}
		}
		count[s.result]++
		fmt.Fprintf(out, "%s: %s\n", named(s.object), s)
		if note != "" {
			fmt.Fprintln(out, "  "+note)
		}
	}
	end := ""
	if c.DryRun {
		end = "; nothing was changed, because of --dry-run"
	}
	fmt.Fprintf(info, "· created: %d, changed: %d, unchanged: %d%s\n", count[resultCreated], count[resultChanged], count[resultUnchanged], end)
	return nil
}

// applyError is the error of a step. The steps before it have been made.
func applyError(object string, err error, count map[string]int) error {
	made := count[resultCreated] + count[resultChanged]
	return fmt.Errorf("%s: %w; the objects above are as the file states (created or changed: %d), and the same command continues here", printable(object), err, made)
}

// The results of a step.
const (
	resultCreated   = "created"
	resultChanged   = "changed"
	resultUnchanged = "unchanged"
)

// applyStep creates or changes one object. do is nil if there is nothing to do; it returns a line to print.
type applyStep struct {
	object, result string
	fields         []string // that change
	do             func(ctx context.Context) (note string, err error)
}

func (s applyStep) String() string {
	if len(s.fields) == 0 {
		return s.result
	}
	return s.result + " (" + strings.Join(s.fields, ", ") + ")"
}

// secretFile is a new file for the secret of an API key.
type secretFile struct{ *os.File }

// secretPath returns where the secret of a key is written.
func secretPath(dir string, k declaration.Key) string {
	title := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, k.Title)
	return filepath.Join(dir, strings.TrimSuffix(k.Path[0], "s")+"."+k.Path[1]+"."+title) // such as team.search.Nightly
}

// newSecretFile creates the file, which only its user can read. It replaces no other one.
func newSecretFile(path string) (secretFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return secretFile{}, fmt.Errorf("create the directory of --secrets: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user's own directory
	if err != nil {
		return secretFile{}, fmt.Errorf("create the file of the secret: %w", err)
	}
	return secretFile{f}, nil
}

// remove removes the file.
func (f secretFile) remove() {
	_ = f.Close()           // nothing was written
	_ = os.Remove(f.Name()) // an empty file that remains is refused by the next run, which names it
}

// write writes the secret to the disk.
func (f secretFile) write(secret string) error {
	_, err := f.WriteString(secret)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write the file of the secret: %w", err)
	}
	return nil
}
