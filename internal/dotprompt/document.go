package dotprompt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Document encloses a text in document lines. The id is derived from the text, so that no text can contain its own closing line and the same
// input always renders the same prompt. White space at the ends of the text is removed, and what is not UTF-8 is replaced.
func Document(name, text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	sum := sha256.Sum256([]byte(name + "\n" + text))
	id := hex.EncodeToString(sum[:8])
	return fmt.Sprintf("<document name=%q id=%q>\n%s\n</document id=%q>", name, id, text, id)
}
