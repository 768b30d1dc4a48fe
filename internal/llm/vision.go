package llm

import (
	"slices"
	"strings"
)

// noText is what the vision prompts ask for when a picture holds no text, by locale.
var noText = []string{"[no text]", "[无文字]"}

// NoText reports whether a vision step's answer states that no text could be read.
func NoText(answer string) bool {
	answer = strings.TrimSpace(answer)
	return answer == "" || slices.Contains(noText, answer)
}
