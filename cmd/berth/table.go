package main

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/rivo/uniseg"
)

// table aligns lines whose cells are separated by tabs, as text/tabwriter does, by the width that a terminal gives to characters: those of
// Chinese and emoji have two columns. An empty line begins another table. Texts of users cannot control the terminal.
type table struct {
	out   io.Writer
	lines bytes.Buffer
}

func newTable(out io.Writer) *table { return &table{out: out} }

// Write adds lines, or parts of one.
func (t *table) Write(b []byte) (int, error) { return t.lines.Write(b) }

// Flush prints the lines.
func (t *table) Flush() error {
	if t.lines.Len() == 0 {
		return nil
	}
	var text strings.Builder
	for block := range strings.SplitSeq(t.lines.String(), "\n\n") {
		if text.Len() > 0 {
			text.WriteString("\n")
		}
		writeBlock(&text, strings.TrimSuffix(block, "\n"))
	}
	t.lines.Reset()
	_, err := io.WriteString(t.out, text.String())
	return err
}

// fail prints the rows before an error, without a heading if there are none, and returns the error.
func (t *table) fail(err error) error {
	if bytes.Count(t.lines.Bytes(), []byte("\n")) < 2 {
		return err
	}
	return errors.Join(t.Flush(), err)
}

func writeBlock(out *strings.Builder, block string) {
	var rows [][]string
	var widths []int
	for line := range strings.SplitSeq(block, "\n") {
		cells := strings.Split(line, "\t")
		for i := range cells {
			cells[i] = strings.Map(harmless, cells[i])
			if len(widths) <= i {
				widths = append(widths, 0)
			}
			if i < len(cells)-1 {
				widths[i] = max(widths[i], uniseg.StringWidth(cells[i]))
			}
		}
		rows = append(rows, cells)
	}
	for _, cells := range rows {
		for i, cell := range cells {
			out.WriteString(cell)
			if i < len(cells)-1 {
				out.WriteString(strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell)+2))
			}
		}
		out.WriteString("\n")
	}
}
