package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tool returns a script in place of a program.
func tool(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\ncat >/dev/null\n"+script+"\n"), 0o700)) //nolint:gosec // a test's program has to be executable
	return path
}

func TestUploads_ToolsAndTheirData_AreChecked(t *testing.T) { // FU2
	t.Parallel()
	for name, c := range map[string]struct {
		pdfToText, tesseract string
		want                 []Finding
	}{
		"the installed tools": {"pdftotext", "tesseract", []Finding{
			{OK, "uploads", "PDF files are read", ""}, {OK, "uploads", "the model simulator reads images", ""},
		}},
		"no tools": {"no-such-pdftotext", "no-such-tesseract", []Finding{
			{Warning, "uploads", "PDF files are refused: pdftotext is not installed", readerPackages},
			{Warning, "uploads", "the model simulator does not read images", simulatorPackages},
		}},
		"tools without data": {tool(t, `echo "Syntax Error: Missing language pack for 'Adobe-GB1' mapping" >&2`), tool(t, "echo 'Failed loading language chi_sim' >&2; exit 1"), []Finding{
			{Warning, "uploads", "poppler-data", readerPackages}, {Warning, "uploads", "tesseract is not installed", simulatorPackages},
		}},
		"tools that omit what they cannot read": {tool(t, "echo Go"), tool(t, "echo Redis"), []Finding{
			{Warning, "uploads", "Japanese or Korean characters are not read", readerPackages},
			{Warning, "uploads", "the model simulator does not read images", simulatorPackages},
		}},
	} {
		d := &doctor{pdfToText: c.pdfToText, tesseract: c.tesseract}
		d.uploads(t.Context())
		require.Len(t, d.findings, len(c.want), name)
		for i, want := range c.want {
			got := d.findings[i]
			require.Contains(t, got.Text, want.Text, name)
			require.Equal(t, Finding{want.Level, want.Subject, got.Text, want.Advice}, got, name)
		}
	}
}
