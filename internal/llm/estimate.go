package llm

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"

	"berth"
	"berth/internal/template"
)

// promptTokens is the room for what a prompt contains besides the task's texts: instructions, schema and stored passages. Of a small context it
// is a half.
const promptTokens = 4000

// Estimates for providers that report no usage, after the documentation of the providers in routing.yaml.
const (
	tokensPerASCII = 0.3
	tokensPerOther = 0.6
	tokensPerImage = 1000
	// tokensPerAnswer is what a call is expected to return.
	tokensPerAnswer = 1000
)

// Tokens estimates the tokens of a text.
func Tokens(text string) float64 { return tokens(text) }

// LeastTokens returns the number of tokens below which a provider cannot have read the whole text.
func LeastTokens(text string) int64 { return leastTokens([]Message{TextMessage(RoleUser, text)}) }

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
		for _, p := range m.Parts {
			in += tokens(p.Text)
			if p.ImageURL != "" {
				in += tokensPerImage
			}
		}
	}
	return berth.Usage{
		InputTokens:  int64(math.Ceil(in)),
		OutputTokens: int64(math.Ceil(tokens(answer) + thought)),
	}
}

// Bounds for a prompt that was read as a whole: a token is rarely longer than a word, and never has more characters than these. They are
// below what any current tokenizer needs, because a prompt must not be called truncated when it is not.
const (
	charactersPerToken = 10
	tokensPerIdeograph = 0.4
	leastShare         = 0.9
)

// leastTokens returns the number of tokens below which a provider cannot have read the whole prompt. Only words count, not punctuation
// and white space, of which tokenizers join long runs.
func leastTokens(asked []Message) int64 {
	least := 0.0
	for _, m := range asked {
		word := 0
		end := func() {
			least += math.Ceil(float64(word) / charactersPerToken)
			word = 0
		}
		for _, r := range m.Text() {
			switch {
			case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai):
				end()
				least += tokensPerIdeograph
			case unicode.IsLetter(r):
				word++
			case !unicode.IsMark(r):
				end()
			}
		}
		end()
	}
	return int64(least * leastShare)
}

// Cost estimates the tokens of a call before it is made, with its answer, in thousands.
func Cost(asked []Message) float64 {
	u := estimate(asked, "", tokensPerAnswer)
	return math.Ceil(float64(u.InputTokens+u.OutputTokens)/10) / 100
}

// Size estimates the tokens of a call with its answer, for which the model may use its maximum. Of several answers it is one: each has the
// context for itself.
func (c *Catalog) Size(call Call) int {
	answer := call.MaxTokens
	if m, _ := c.Model(call.Model); answer <= 0 && len(m.Upstreams) > 0 {
		smallest := slices.MinFunc(m.Upstreams, func(a, b Upstream) int { return cmp.Compare(a.MaxOutputTokens, b.MaxOutputTokens) })
		answer = smallest.MaxOutputTokens
	}
	if call.Raw == nil {
		return int(estimate(call.Messages, "", 0).InputTokens) + answer
	}
	if call.Raw.Operation == OperationEmbeddings {
		answer = 0
	}
	return int(call.Raw.InputTokens) + call.Raw.bound(answer)
}

// CheckContext returns an error with berth.CodeTooLarge if the texts of a task exceed the context of the model of one of its
// steps, as far as that can be estimated before the call. texts are the values of variables by name; the error names the
// longest that the step reads.
func (c *Catalog) CheckContext(t *template.Template, steps []berth.Step, texts map[string]string) error {
	sizes := map[string]int{}
	for name, text := range texts {
		sizes[name] = int(math.Ceil(tokens(text)))
	}
	for _, s := range steps {
		room, known := c.textRoom(s.Model)
		if !known {
			continue
		}
		reads, _ := t.Step(string(s.Name))
		sum, longest := 0, ""
		for _, name := range slices.Sorted(maps.Keys(sizes)) {
			if !slices.Contains(reads.Reads, name) {
				continue
			}
			if sum += sizes[name]; longest == "" || sizes[name] > sizes[longest] {
				longest = name
			}
		}
		if longest != "" && sum > room {
			err := berth.Errorf(berth.CodeTooLarge, "too long for the model %s: the texts of step %s have about %d tokens, %d of them here, and at most %d fit; shorten it",
				s.Model, s.Name, sum, sizes[longest], room)
			err.Field = "variables." + longest
			return err
		}
	}
	return nil
}

// textRoom returns how many tokens of texts fit the upstream of a model with the most room, and false if that is unknown.
func (c *Catalog) textRoom(model string) (room int, known bool) {
	m, ok := c.Model(model)
	for _, u := range m.Upstreams {
		if u.ContextTokens == 0 {
			return 0, false
		}
		prompt := u.ContextTokens - u.MaxOutputTokens
		room = max(room, prompt-min(promptTokens, prompt/2))
	}
	return room, ok
}
