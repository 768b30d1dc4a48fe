package llm

import (
	"math"
	"unicode/utf8"

	"berth"
)

// Estimates for providers that report no usage, after the documentation of the providers in routing.yaml.
const (
	tokensPerASCII = 0.3
	tokensPerOther = 0.6
	tokensPerImage = 1000
)

func tokens(s string) float64 {
	other := 0
	for _, r := range s {
		if r >= utf8.RuneSelf {
			other++
		}
	}
	return tokensPerASCII*float64(utf8.RuneCountInString(s)-other) + tokensPerOther*float64(other)
}

func estimate(asked []Message, answer string, thought float64) berth.Usage {
	in := 0.0
	for _, m := range asked {
		in += tokens(m.Text)
		if m.ImageURL != "" {
			in += tokensPerImage
		}
	}
	return berth.Usage{
		InputTokens:  int64(math.Ceil(in)),
		OutputTokens: int64(math.Ceil(tokens(answer) + thought)),
	}
}
