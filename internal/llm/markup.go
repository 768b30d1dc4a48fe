package llm

import "strings"

// tags are the texts that a model writes before and after something. also are other forms of the end.
type tags struct {
	begin, end string
	also       []string
}

// The markup of models whose server does not remove it; it is recognised in upper and lower case. A new model is a row here. The sources
// are the chat templates of the models, and the reasoning parsers of vLLM and SGLang.
var (
	// thinkingTags enclose what a model thinks before it answers.
	thinkingTags = []tags{
		{begin: "<think>", end: "</think>"},                                                // DeepSeek R1, Qwen 3, GLM 4.5, MiniMax M2, Hunyuan, Phi 4
		{begin: "<thinking>", end: "</thinking>"},                                          // models that a prompt has asked to think
		{begin: "<reasoning>", end: "</reasoning>"},                                        // the same
		{begin: "<thought>", end: "</thought>"},                                            // EXAONE Deep, Gemini
		{begin: "[think]", end: "[/think]"},                                                // Magistral
		{begin: "<seed:think>", end: "</seed:think>"},                                      // Seed-OSS
		{begin: "◁think▷", end: "◁/think▷"},                                                // Kimi-VL
		{begin: "<|begin_of_thought|>", end: "<|end_of_thought|>"},                         // OpenThinker
		{begin: "<|start_thinking|>", end: "<|end_thinking|>"},                             // Command A Reasoning
		{begin: "<unused94>", end: "<unused95>"},                                           // MedGemma
		{"<|channel|>analysis<|message|>", "<|channel|>final<|message|>", finalChannels},   // gpt-oss
		{"<|channel|>commentary<|message|>", "<|channel|>final<|message|>", finalChannels}, // the same
	}
	// finalChannels are the other forms in which gpt-oss begins an answer, in a format that was asked for.
	finalChannels = []string{"<|channel|>final <|constrain|>json<|message|>", "<|channel|>final<|constrain|>json<|message|>", "<|channel|>final json<|message|>"}
	// startMarks are the tokens before an answer or its thoughts.
	startMarks = []string{"<|start|>assistant", "<|im_start|>assistant"}
	// answerTags enclose the answer behind the thoughts.
	answerTags = []tags{
		{begin: "<answer>", end: "</answer>"},                        // GLM 4.1V, Hunyuan
		{begin: "<response>", end: "</response>"},                    // ERNIE 4.5
		{begin: "<|begin_of_solution|>", end: "<|end_of_solution|>"}, // OpenThinker
		{begin: "<|start_response|>", end: "<|end_response|>"},       // Command A Reasoning
	}
	// boxTags enclose what a model considers the result within its answer.
	boxTags = []tags{{begin: "<|begin_of_box|>", end: "<|end_of_box|>"}} // GLM 4.1V, GLM 4.5V
	// toolTags enclose the call of a tool.
	toolTags = tags{begin: "<tool_call>", end: "</tool_call>"} // Qwen, Hermes, GLM
	// endMarks are the tokens with which models end an answer.
	endMarks = []string{
		"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|end|>", "<|return|>", "<end_of_turn>", "<｜end▁of▁sentence｜>",
	}
)

// markStarts are the characters with which the markup begins.
const markStarts = "<[◁"

// mark is a text of the markup that may stand within an answer.
type mark struct {
	text string
	kind markKind
}

type markKind int

const (
	boxEdge         markKind = iota
	endOfAnswer              // of the answer
	beginOfThoughts          // is the answer's own, and so is an end behind it
	endOfThoughts
)

var answerMarks = func() (all []mark) {
	for _, t := range boxTags {
		all = append(all, mark{t.begin, boxEdge}, mark{t.end, boxEdge})
	}
	for _, m := range endMarks {
		all = append(all, mark{m, endOfAnswer})
	}
	for _, t := range thinkingTags {
		all = append(all, mark{t.begin, beginOfThoughts}, mark{t.end, endOfThoughts})
		for _, end := range t.also {
			all = append(all, mark{end, endOfThoughts})
		}
	}
	return all
}()

// find returns the first mark in a text, and its size if it is whole, or 0 if it is cut off by the end of the text, and where it is: at the
// end of the text if there is none.
func find(text string, marks []mark) (at int, found mark, size int) {
	for at < len(text) {
		next := strings.IndexAny(text[at:], markStarts)
		if next < 0 {
			break
		}
		at += next
		for _, m := range marks {
			if size, part := startsWith(text[at:], m.text); size > 0 || part {
				return at, m, size
			}
		}
		at++
	}
	return len(text), mark{}, 0
}

// maxAttributes bounds the attributes of a tag in bytes.
const maxAttributes = 128

// startsWith returns the size of a mark that a text begins with, or whether the text could begin with it if it were longer. Tags may have
// attributes, and white space at their end.
func startsWith(text, mark string) (size int, part bool) {
	name, isTag := strings.CutSuffix(mark, ">")
	if isTag = isTag && !strings.HasPrefix(mark, "<|") && !strings.HasPrefix(mark, "<｜"); !isTag {
		name = mark
	}
	if len(text) < len(name) {
		return 0, strings.EqualFold(text, mark[:len(text)])
	}
	if !strings.EqualFold(text[:len(name)], name) {
		return 0, false
	}
	if !isTag {
		return len(name), false
	}
	rest := text[len(name):]
	end := strings.IndexAny(rest, "<>\r\n")
	if end < 0 {
		return 0, len(rest) <= maxAttributes && (rest == "" || strings.ContainsAny(rest[:1], " \t/"))
	}
	switch attributes := strings.TrimSpace(rest[:end]); {
	case rest[end] != '>' || end > maxAttributes:
		return 0, false
	case attributes == "", attributes == "/", strings.ContainsAny(rest[:1], " \t") && strings.Contains(attributes, "="):
		return len(name) + end + 1, false
	}
	return 0, false
}
