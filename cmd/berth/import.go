package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/litellm"
	"berth/internal/llm"
	"berth/internal/setting"
)

type importCommands struct {
	LiteLLM importLiteLLM `cmd:"" name:"litellm" help:"Convert the config.yaml of a LiteLLM proxy into a routing file, and name what it cannot carry."`
}

type importLiteLLM struct {
	File   string `arg:"" help:"The configuration; - for standard input." type:"path"`
	Output string `short:"o" help:"Write the routing file to this file, which must not exist, instead of standard output." type:"path"`
}

// Run writes the routing file, and the notes to standard error.
func (c *importLiteLLM) Run() error { return c.run(os.Stdout, os.Stderr) }

func (c *importLiteLLM) run(out, info io.Writer) error {
	name, src, err := readFile(c.File)
	if err != nil {
		return err
	}
	name = filepath.Base(name)
	result, err := litellm.Convert(src)
	if err != nil {
		return setting.Wrong(fmt.Errorf("%s: %w", name, err))
	}
	for _, n := range result.Notes {
		fmt.Fprintf(info, "%s:%d: %s: %s\n", name, n.Line, n.Path, n.Text)
	}
	if result.Models == 0 {
		return setting.Wrong(fmt.Errorf("%s: no model can be carried: see the notes", name))
	}
	if _, err := llm.ParseContent("routing file", string(result.Routing)); err != nil {
		return fmt.Errorf("the result is not valid, please report it: %w", err)
	}
	if err := c.write(out, result.Routing); err != nil {
		return err
	}
	fmt.Fprintf(info, "· models: %d, upstreams: %d, notes: %d\n", result.Models, result.Upstreams, len(result.Notes))
	if len(result.Keys) > 0 {
		fmt.Fprintf(info, "· BERTH_PROVIDER_KEYS needs %s\n", strings.Join(result.Keys, ", "))
	}
	return nil
}

func (c *importLiteLLM) write(out io.Writer, routing []byte) error {
	if c.Output == "" {
		_, err := out.Write(routing)
		return err
	}
	f, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a routing file has no secrets
	if err != nil {
		return setting.Wrong(fmt.Errorf("write the routing file: %w", err))
	}
	_, err = f.Write(routing)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write the routing file: %w", err)
	}
	return nil
}
