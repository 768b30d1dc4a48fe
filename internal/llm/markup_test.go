package llm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// filterIn passes an answer through a filter in pieces that end at the given bytes, or in pieces of one byte.
func filterIn(answer string, ends ...int) (text, thoughts string) {
	f := &answerFilter{}
	add := func(out filtered) {
		if out.withdrawn {
			thoughts, text = thoughts+text, ""
		}
		thoughts += out.thoughts
		text += out.text
	}
	if ends == nil {
		for _, r := range answer {
			add(f.feed(string(r)))
		}
	}
	last := 0
	for _, end := range append(ends, len(answer)) {
		if ends != nil {
			add(f.feed(answer[last:end]))
			last = end
		}
	}
	add(f.close())
	return text, thoughts
}

func TestAnswerFilter_MarkupOfModels_RemovedWhereverItIsCut(t *testing.T) { // FM2, P21
	t.Parallel()
	type want struct{ answer, text, thoughts string }
	rows := map[string]want{
		"nothing":                           {"", "", ""},
		"plain text":                        {"  The <b>answer</b> [1].\n", "  The <b>answer</b> [1].\n", ""},
		"draft and final":                   {`<think>{"a":1}</think>{"a":2}`, `{"a":2}`, `{"a":1}`},
		"white space around":                {"\n\n<think>\nhm\n</think>\n\nThe answer.\n", "The answer.\n", "\nhm\n"},
		"byte order mark before":            {"\ufeff<think>hm</think>The answer.", "The answer.", "hm"},
		"no thoughts":                       {"<think>\n\n</think>\n\nThe answer.", "The answer.", "\n\n"},
		"several":                           {"<think>a</think>\n<think>b</think>\nThe answer.", "The answer.", "ab"},
		"capitals":                          {"<THINK>hm</Think>The answer.", "The answer.", "hm"},
		"only thoughts":                     {"<think>hm", "", "hm"},
		"cut off in the closing tag":        {"<think>hm</thi", "", "hm</thi"},
		"cut off in the opening tag":        {"<thi", "<thi", ""},
		"another tag in thoughts":           {"<think>a </thinking> b</think>c", "c", "a </thinking> b"},
		"with the answer enclosed":          {"<think>hm</think><answer>The answer.</answer>\n", "The answer.", "hm"},
		"an answer that encloses something": {"<think>hm</think>It is <answer>42</answer>.", "It is <answer>42</answer>.", "hm"},
		"enclosed without thoughts":         {"<answer>The answer.</answer>", "<answer>The answer.</answer>", ""},
		"box":                               {"<|begin_of_box|>The answer<|end_of_box|>", "The answer", ""},
		"box in a sentence":                 {"It is <|begin_of_box|>42<|end_of_box|>.", "It is 42.", ""},
		"thoughts, answer and box":          {"<think>hm</think><answer><|begin_of_box|>42<|end_of_box|></answer>", "42", "hm"},
		"thoughts in a box":                 {"<|begin_of_box|><think>hm</think>42<|end_of_box|>", "42", "hm"},
		"gpt-oss":                           {"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>", "42", "hm<|end|><|start|>assistant"},
		"gpt-oss without thoughts":          {"<|channel|>final<|message|>42<|return|>", "42", ""},
		"end mark":                          {"The answer.<|im_end|>", "The answer.", ""},
		"end marks and lines":               {"The answer.<|eot_id|>\n<|end_of_text|> \n", "The answer.", ""},
		"end mark in the middle":            {"a<|im_end|> \nb<|im_end|>", "a<|im_end|> \nb", ""},

		"nested":                             {"<think>a <think>b</think> c</think>The answer.", "The answer.", "a <think>bc"},
		"nested, behind spaces":              {"<think>a <think> b </think> c </think> The answer.", "The answer.", "a <think> b c "},
		"nested, on lines":                   {"<think>\na\n<think>\nb\n</think>\nc\n</think>\n\nThe answer.", "The answer.", "\na\n<think>\nb\nc\n"},
		"nested, at the beginning":           {"<think><think>a</think>b</think>The answer.", "The answer.", "<think>ab"},
		"nested twice":                       {"<think>a<think>b<think>c</think>d</think>e</think>The answer.", "The answer.", "a<think>b<think>cde"},
		"nested, and again":                  {"<think>a<think>b</think>c<think>d</think>e</think>The answer.", "The answer.", "a<think>bc<think>de"},
		"nested, one behind the other":       {"<think>a<think>b</think><think>c</think>d</think>The answer.", "The answer.", "a<think>bcd"},
		"nested, before an object":           {`<think>a<think>{"a":1}</think>b</think>{"a":2}`, `{"a":2}`, `a<think>{"a":1}b`},
		"nested, several tags":               {"<thinking>a<thinking>b</thinking>c</thinking>The answer.", "The answer.", "a<thinking>bc"},
		"nested, in brackets":                {"[THINK]a[THINK]b[/THINK]c[/THINK]The answer.", "The answer.", "a[THINK]bc"},
		"nested, not closed":                 {"<think>a<think>b</think>The answer.", "The answer.", "a<think>b"},
		"nested, enclosed":                   {"<think>a<think>b</think>c</think><answer>42</answer>", "42", "a<think>bc"},
		"nested, then tags in an answer":     {"<think>a<think>b</think>c</think>It is <think>, then </think>\n.", "It is <think>, then </think>\n.", "a<think>bc"},
		"thoughts about the tag":             {"<think>They ask about <think> tags.</think>\n\nUse <think> before and </think> behind.", "Use <think> before and </think> behind.", "They ask about <think> tags."},
		"thoughts about the tag, in a quote": {"<think>They ask about \"<think>\".</think>The tag </think> ends it.", "The tag </think> ends it.", "They ask about \"<think>\"."},
		"thoughts about the tag as code":     {"<think>I write `<think>` and `</think>` here.</think>The answer.", "The answer.", "I write `<think>` and `</think>` here."},
		"thoughts with a block of code":      {"<think>So:\n```\n<think>\n```\n</think>The tag ends\n</think>\nso.", "The tag ends\n</think>\nso.", "So:\n```\n<think>\n```\n"},

		"attributes":                      {"<think duration=\"3\" x='y'>hm</think>The answer.", "The answer.", "hm"},
		"white space in tags":             {"<think >hm</think >The answer.", "The answer.", "hm"},
		"an empty tag":                    {"<think/>The answer.", "The answer.", ""},
		"an empty tag with a space":       {"<thinking />\nThe answer.", "The answer.", ""},
		"words in angle brackets":         {"<think about it> The answer.", "<think about it> The answer.", ""},
		"a comparison":                    {"<think = 5", "<think = 5", ""},
		"a long tag":                      {"<think a=\"" + strings.Repeat("x", 200) + "\">hm", "<think a=\"" + strings.Repeat("x", 200) + "\">hm", ""},
		"gpt-oss, all its tokens":         {"<|start|>assistant<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>", "42", "hm<|end|><|start|>assistant"},
		"gpt-oss, two thoughts":           {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>42", "42", "a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant"},
		"gpt-oss, a preamble":             {"<|channel|>commentary<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>42", "42", "hm<|end|><|start|>assistant"},
		"gpt-oss, an object":              {`<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{"a":1}<|return|>`, `{"a":1}`, "hm<|end|><|start|>assistant"},
		"gpt-oss, no thoughts, its start": {"<|start|>assistant<|channel|>final<|message|>42<|return|>", "42", ""},

		"closing tag alone, on its line":        {"hm\nwell\n</think>\n\nThe answer.", "The answer.", "hm\nwell\n"},
		"closing tag alone, behind a sentence":  {"hm.</think>\n\nThe answer.", "The answer.", "hm."},
		"closing tag alone, before an object":   {`{"a":1}</think>{"a":2}`, `{"a":2}`, `{"a":1}`},
		"closing tag alone, before everything":  {"</think>\n\nThe answer.", "The answer.", ""},
		"closing tag alone, indented":           {"hm\n  </think>\nThe answer.", "The answer.", "hm\n  "},
		"closing tag alone, then it is a text":  {"hm\n</think>\nThe tag\n</think>\nends.", "The tag\n</think>\nends.", "hm\n"},
		"closing tag alone, behind code":        {"hm\n```go\nx\n```\n</think>\nThe answer.", "The answer.", "hm\n```go\nx\n```\n"},
		"closing tag alone, at the end":         {"hm.</think>", "hm.</think>", ""},
		"closing tag alone, then an answer tag": {"hm\n</think>\n<answer>42</answer>", "42", "hm\n"},

		"tag in a sentence":            {"Write <think> before, and </think> behind.", "Write <think> before, and </think> behind.", ""},
		"pair of tags in a sentence":   {"For example <think>hm</think>{}.", "For example <think>hm</think>{}.", ""},
		"tags in a block of code":      {"So:\n```\n<think>\nhm\n</think>\n42\n<|begin_of_box|>\n```\nDone.", "So:\n```\n<think>\nhm\n</think>\n42\n<|begin_of_box|>\n```\nDone.", ""},
		"tags as code":                 {"Use `</think>` and `<|end_of_box|>` so.", "Use `</think>` and `<|end_of_box|>` so.", ""},
		"tags on lines of their own":   {"So:\n<think>\nhm\n</think>\n42", "So:\n<think>\nhm\n</think>\n42", ""},
		"closing tag in a sentence":    {"The tag </think>\nends it.", "The tag </think>\nends it.", ""},
		"closing tag in quotes":        {`The tag "</think>` + "\n\" ends it.", `The tag "</think>` + "\n\" ends it.", ""},
		"closing tag in Chinese":       {"标签</think>表示结束。", "标签</think>表示结束。", ""},
		"thoughts, then their tags":    {"<think>hm</think>It is <think>, then </think>\n.", "It is <think>, then </think>\n.", "hm"},
		"a text in a JSON object":      {`{"a":"<think>hm</think>","b":"</think>"}`, `{"a":"<think>hm</think>","b":"</think>"}`, ""},
		"brackets":                     {"[thin] [think ing] <thinner>", "[thin] [think ing] <thinner>", ""},
		"other tokens":                 {"<|user|> <unused93> ◁◁", "<|user|> <unused93> ◁◁", ""},
		"end mark in code":             {"Use `<|im_end|>`", "Use `<|im_end|>`", ""},
		"white space only":             {" \n\t", " \n\t", ""},
		"a tag that is not closed off": {"<think", "<think", ""},
	}
	for _, tag := range thinkingTags {
		rows["tags of "+tag.begin] = want{"\n" + tag.begin + "hm\n" + tag.end + "\n\nThe answer.", "The answer.", "hm\n"}
	}
	for _, tag := range answerTags {
		rows["enclosed in "+tag.begin] = want{"<think>hm</think>\n" + tag.begin + "\nThe answer." + tag.end + "\n", "The answer.", "hm"}
	}
	for _, mark := range endMarks {
		rows["ended by "+mark] = want{"The answer." + mark + "\n", "The answer.", ""}
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(how string, ends ...int) {
				text, thoughts := filterIn(row.answer, ends...)
				require.Equal(t, row.text, text, how)
				require.Equal(t, row.thoughts, thoughts, how)
			}
			check("one character at a time")
			for i := range row.answer { // never within a character, as JSON texts
				check(fmt.Sprintf("cut at byte %d", i), i)
				for j := range row.answer[i:] {
					check(fmt.Sprintf("cut at bytes %d and %d", i, i+j), i, i+j)
				}
			}
		})
	}
}

// What cannot become markup is not held back.
func TestAnswerFilter_Text_NotHeldBack(t *testing.T) { // FM2
	t.Parallel()
	f := &answerFilter{}
	for _, piece := range []string{"The ", "answer ", "is < 5 ", "[of 6]", "\n"} {
		require.Equal(t, piece, f.feed(piece).text)
	}
	require.Equal(t, filtered{thoughts: "hm"}, (&answerFilter{}).feed("<think>hm"), "readers know that the model thinks")
}

func TestAnswerFilter_Marks_BeginAsDeclared(t *testing.T) { // FM2
	t.Parallel()
	all := answerMarks
	for _, tag := range answerTags {
		all = append(all, mark{text: tag.begin}, mark{text: tag.end})
	}
	for _, m := range all {
		require.Equal(t, strings.ToLower(m.text), m.text)
		require.Zero(t, strings.IndexAny(m.text, markStarts), m.text)
	}
}

func BenchmarkAnswerFilter_LongAnswer(b *testing.B) {
	piece := strings.Repeat("word < [x] ", 10)
	for b.Loop() {
		f := &answerFilter{}
		for range 20_000 {
			f.feed(piece)
		}
	}
}
