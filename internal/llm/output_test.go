package llm

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testtemplate"
)

var goodOutputs = map[berth.Template]string{
	"job_summary": `{"title":"Go engineer","company":null,"summary":"Builds services.","responsibilities":["build"],
		"mustHave":["3 years of Go"],"niceToHave":[],"skills":["Go","Redis"]}`,
	"resume_summary": `{"headline":"Engineer","summary":"Five years.","yearsOfExperience":5.5,"skills":["Go"],
		"experience":[{"title":"Engineer","organisation":"Acme","period":null,"highlights":["cut costs by 30 %"]}],
		"education":[{"institution":"TU"}],"languages":["German"]}`,
	"detailed_resume_summary": `{"headline":"Engineer","summary":"Five years.","skillGroups":[{"group":"backend","skills":["Go"]}],
		"experience":[{"title":"Engineer","achievements":[{"what":"moved to Go","result":"30 % cheaper"}]}],
		"projects":[{"name":"berth","description":"a dispatcher"}],"education":[],"strengths":["Go"],"gaps":[]}`,
	"resume_customize": `{"headline":"Go engineer","summary":"…","skills":["Go"],
		"experience":[{"title":"Engineer","bullets":["built"]}],
		"changes":[{"section":"skills","change":"Go first","reason":"asked for"}],"missing":["Kubernetes"]}`,
}

// output returns the schema of the result of a built-in template.
func output(t *testing.T, name berth.Template) *jsonschema.Schema {
	t.Helper()
	one := testtemplate.Find(t, name)
	return one.Output(one.Steps[len(one.Steps)-1].ID)
}

func TestValidateOutput_EachRequiredField_IsRequired(t *testing.T) {
	t.Parallel()
	for name, good := range goodOutputs {
		out, err := ValidateOutput(output(t, name), []byte(good))
		require.NoError(t, err, name)
		require.JSONEq(t, good, string(out))
		require.NotContains(t, string(out), "\n")
		require.NotEmpty(t, output(t, name).Required)
		for _, field := range output(t, name).Required {
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(good), &object))
			delete(object, field)
			without, err := json.Marshal(object)
			require.NoError(t, err)
			_, err = ValidateOutput(output(t, name), without)
			require.Equal(t, berth.CodeInvalidOutput, berth.CodeOf(err))
			require.ErrorContains(t, err, field)
		}
	}
}

func TestValidateOutput_TextAroundObject_ObjectFound(t *testing.T) {
	t.Parallel()
	good := goodOutputs["job_summary"]
	for name, answer := range map[string]string{
		"fence":               "```json\n" + good + "\n```",
		"fence without name":  "```\n" + good + "\n```\n",
		"text around":         "Here it is:\n" + good + "\nI hope this helps {really}.",
		"reasoning before":    "<think>{\"title\":\"draft\"}</think>\n" + good,
		"braces before":       "I use {braces} a lot. " + good,
		"byte order mark":     "\ufeff" + good,
		"two, the first fits": good + "\n" + good,
	} {
		out, err := ValidateOutput(output(t, "job_summary"), []byte(answer))
		require.NoError(t, err, name)
		require.JSONEq(t, good, string(out), name)
	}
}

func TestValidateOutput_InvalidAnswer_ViolationNamed(t *testing.T) {
	t.Parallel()
	good := goodOutputs["resume_summary"]
	swap := func(from, to string) string {
		require.Contains(t, good, from)
		return strings.Replace(good, from, to, 1)
	}
	for name, row := range map[string]struct{ answer, want string }{
		"empty":          {"", "no complete JSON object"},
		"prose":          {"I cannot do that.", "contains no {"},
		"list":           {`["a"]`, "contains no {"},
		"cut off":        {good[:len(good)-30], "contains no complete JSON object: unexpected EOF"},
		"wrong type":     {swap(`"skills":["Go"]`, `"skills":"Go"`), "at /skills: got string, want array"},
		"deep":           {swap(`["cut costs by 30 %"]`, `[7]`), "at /experience/0/highlights/0: got number, want string"},
		"missing in row": {swap(`"title":"Engineer",`, ``), "at /experience/0: missing property 'title'"},
		"too much":       {swap(`"yearsOfExperience":5.5`, `"yearsOfExperience":500`), "at /yearsOfExperience: maximum"},
		"braces only":    {strings.Repeat("{", 200_000), "no complete JSON object"},
	} {
		_, err := ValidateOutput(output(t, "resume_summary"), []byte(row.answer))
		require.Equal(t, berth.CodeInvalidOutput, berth.CodeOf(err), name)
		require.ErrorContains(t, err, row.want, name)
		require.Less(t, len(err.Error()), 4000, name)
	}
}

func TestValidateOutput_ManyViolations_ListBounded(t *testing.T) {
	t.Parallel()
	items := strings.TrimSuffix(strings.Repeat("7,", 40), ",")
	answer := strings.Replace(goodOutputs["job_summary"], `["Go","Redis"]`, "["+items+"]", 1)
	_, err := ValidateOutput(output(t, "job_summary"), []byte(answer))
	require.ErrorContains(t, err, "and 28 more")
}

func TestValidateOutput_JSONAsModelsWriteIt_ObjectIsReadExactly(t *testing.T) { // FM2
	t.Parallel()
	answer := func(title string) string {
		return strings.Replace(goodOutputs["job_summary"], `"Go engineer"`, title, 1)
	}
	titled := func(t *testing.T, title string) string {
		out := &bytes.Buffer{}
		require.NoError(t, json.Compact(out, []byte(answer(title))))
		return out.String()
	}
	plain := `"Go"`
	for name, c := range map[string]struct{ answer, title string }{
		"NUL":                           {answer(`"a\u0000b"`), "\"a\ufffdb\""},
		"half a surrogate pair":         {answer(`"a\ud800b\udc00"`), "\"a\ufffdb\ufffd\""},
		"a surrogate pair":              {answer(`"\ud83c\udf0a"`), `"🌊"`},
		"a text about an escape":        {answer(`"\\u0000 \\ud800"`), `"\\u0000 \\ud800"`},
		"markup":                        {answer(`"<b>&</b>"`), `"<b>&</b>"`},
		"separators":                    {answer(`"a\u2028b"`), `"a\u2028b"`},
		"a byte order mark":             {"\ufeff" + answer(plain), plain},
		"a fence":                       {"```json\n" + answer(plain) + "\n```", plain},
		"a comma at the end":            {strings.Replace(answer(plain), `"Redis"]}`, `"Redis",], }`, 1), plain},
		"comments":                      {"{ // the title\n" + answer(plain)[1:] + " // end", plain},
		"a block comment":               {"{ /* , } */" + answer(plain)[1:], plain},
		"no comment":                    {answer(`"https://example.org/*x*/,]"`), `"https://example.org/*x*/,]"`},
		"line ends in a text":           {answer("\"a\nb\tc\""), `"a\nb\tc"`},
		"as a text":                     {string(must(json.Marshal(answer(plain)))), plain},
		"in a list":                     {"[" + answer(plain) + "]", plain},
		"two, the first does not match": {`{"a":1} ` + answer(plain), plain},
		"a key twice":                   {`{"title":7,` + answer(plain)[1:], plain},
		"a key twice, escaped":          {`{"t\u0069tle":"x",` + answer(plain)[1:], plain},
	} {
		out, err := ValidateOutput(output(t, "job_summary"), []byte(c.answer))
		require.NoError(t, err, name)
		require.Equal(t, titled(t, c.title), string(out), name)
	}
	for name, answer := range map[string]string{
		"deep":             strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000),
		"deep, lenient":    strings.Repeat(`{"a":`, 20_000) + "1," + strings.Repeat("}", 20_000),
		"a huge number":    answer("1e400"),
		"a huge exponent":  answer("1e1000000001"),
		"a small exponent": answer("1e-1000000001"),
		"many digits":      answer(strings.Repeat("9", 100_000)),
		"no end":           answer(plain)[:40] + " // ",
		"an open comment":  "{ /* ",
	} {
		_, err := ValidateOutput(output(t, "job_summary"), []byte(answer))
		require.Equal(t, berth.CodeInvalidOutput, berth.CodeOf(err), name)
	}
	years := func(number string) string {
		return strings.Replace(goodOutputs["resume_summary"], "5.5", number, 1)
	}
	for _, number := range []string{"1e400", "1e1000000001", "-1e1000000001", "12345678901234567890"} {
		_, err := ValidateOutput(output(t, "resume_summary"), []byte(years(number)))
		require.Equal(t, berth.CodeInvalidOutput, berth.CodeOf(err), number)
	}
	for _, number := range []string{"5.00000000000000000000000000001", "1e-400", "1e-1000000001", "5e0"} {
		out, err := ValidateOutput(output(t, "resume_summary"), []byte(years(number)))
		if err != nil {
			require.Equal(t, berth.CodeInvalidOutput, berth.CodeOf(err), number)
			continue
		}
		require.Contains(t, string(out), `:`+number+`,`)
	}
}

func must(b []byte, _ error) []byte { return b }

// Users read what is wrong with the form of an answer, and nothing of the answer.
func TestUnusable_WrongFormat_ReasonWithoutAnswer(t *testing.T) { // FM4
	t.Parallel()
	c := NewClient(Fixed(builtin(t, Settings{})), nil, nil)
	for answer, want := range map[string]string{
		"I cannot, Anna.":               "(no complete JSON object)",
		`{"title":"Anna"`:               "(no complete JSON object)",
		`{"title":"Anna","company":"x"`: "(no complete JSON object)",
		`{}`:                            "(at the top: missing properties 'title', ",
		`{"title":["Anna"],"summary":"s","responsibilities":[],"mustHave":[],"niceToHave":[],"skills":[]}`:                         "at /title: got array, want string",
		`{"title":"x","summary":"s","responsibilities":"Anna; at /x: got a","mustHave":[],"niceToHave":[],"skills":[]}`:            "at /responsibilities: got string, want array",
		`{"title":"x","Anna's; at /x":1,"summary":"s","responsibilities":[],"mustHave":[{"Anna":1}],"niceToHave":[],"skills":[1]}`: "at /mustHave/0: got object, want ",
	} {
		_, mismatch := ValidateOutput(output(t, "job_summary"), []byte(answer))
		require.Error(t, mismatch, answer)
		says := c.Unusable("deepseek-chat", "", CauseFormat, "", mismatch).Message
		require.Contains(t, says, want, answer)
		require.NotContains(t, says, "Anna")
		require.Less(t, len(says), 400)
	}
	other := berth.Errorf(berth.CodeInvalidOutput, "%sat the top: additional properties 'Anna' not allowed; at /x: 'Anna' does not match pattern 'x'", mismatched)
	require.Contains(t, c.Unusable("deepseek-chat", "", CauseFormat, "", other).Message, "(another form of JSON)")
}
