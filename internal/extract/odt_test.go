package extract

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const odtNames = `xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" ` +
	`xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"`

// What a style hides is not part of the text, in one file and in a package whose styles have a part of their own.
func TestText_ODT_HiddenByStyleIsLeftOut(t *testing.T) { // P22
	t.Parallel()
	const none, shown = `<style:text-properties text:display="none"/>`, `<style:text-properties text:display="true"/>`
	for name, c := range map[string]struct{ styles, automatic, body, want string }{
		"no style":     {"", "", `<text:span text:style-name="T1">is</text:span>`, "It is shown."},
		"another one":  {"", `<style:style style:name="T2" style:family="text">` + none + `</style:style>`, `<text:span text:style-name="T1">is</text:span>`, "It is shown."},
		"automatic":    {"", `<style:style style:name="T1" style:family="text">` + none + `</style:style>`, `<text:span text:style-name="T1">hides</text:span>is`, "It is shown."},
		"named":        {`<style:style style:name="S" style:family="text">` + none + `</style:style>`, "", `<text:span text:style-name="S">hides</text:span>is`, "It is shown."},
		"of a parent":  {`<style:style style:name="S" style:family="text">` + none + `</style:style>`, `<style:style style:name="T1" style:family="text" style:parent-style-name="S"/>`, `<text:span text:style-name="T1">hides</text:span>is`, "It is shown."},
		"shown again":  {`<style:style style:name="S" style:family="text">` + none + `</style:style>`, `<style:style style:name="T1" style:family="text" style:parent-style-name="S">` + shown + `</style:style>`, `<text:span text:style-name="T1">is</text:span>`, "It is shown."},
		"of paragraph": {"", `<style:style style:name="P" style:family="paragraph">` + none + `</style:style>`, `is shown.</text:p><text:p text:style-name="P">It hides</text:p><text:p>It is`, "It is shown.\nIt is shown."},
		"in a circle":  {"", `<style:style style:name="A" style:family="text" style:parent-style-name="B"/><style:style style:name="B" style:family="text" style:parent-style-name="A"/>`, `<text:span text:style-name="A">is</text:span>`, "It is shown."},
		"of a list":    {"", `<style:style style:name="T1" style:family="text"/><text:list-style><style:text-properties text:display="none"/></text:list-style>`, `<text:span text:style-name="T1">is</text:span>`, "It is shown."},
	} {
		body := `<office:body><office:text><text:p>It ` + c.body + ` shown.</text:p></office:text></office:body>`
		automatic := `<office:automatic-styles>` + c.automatic + `</office:automatic-styles>`
		styles := `<office:styles>` + c.styles + `</office:styles>`
		flat, err := flatODT(`<office:document `+odtNames+`>`+styles+automatic+body+`</office:document>`, 1000)
		require.NoError(t, err, name)
		require.Equal(t, c.want, flat, name)
		content := parts(t, "mimetype", odtType, "styles.xml", `<office:document-styles `+odtNames+`>`+styles+`</office:document-styles>`,
			"content.xml", `<office:document-content `+odtNames+`>`+automatic+body+`</office:document-content>`)
		packaged, err := odt(content, 1000)
		require.NoError(t, err, name)
		require.Equal(t, c.want, packaged, name)
	}
}
