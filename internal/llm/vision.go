package llm

import (
	"slices"
	"strings"
)

// noText lists the answers that the vision prompts request for an image without text.
var noText = []string{"[no text]", "[无文字]"}

// NoText reports whether a vision step found no text in its image.
func NoText(answer string) bool {
	answer = strings.TrimSpace(answer)
	return answer == "" || slices.Contains(noText, answer)
}
