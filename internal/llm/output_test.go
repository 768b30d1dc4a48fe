package llm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

var goodOutputs = map[berth.Template]string{
	berth.TemplateJobSummary: `{"title":"Go engineer","company":null,"summary":"Builds services.","responsibilities":["build"],
		"mustHave":["3 years of Go"],"niceToHave":[],"skills":["Go","Redis"]}`,
	berth.TemplateResumeSummary: `{"headline":"Engineer","summary":"Five years.","yearsOfExperience":5.5,"skills":["Go"],
		"experience":[{"title":"Engineer","organisation":"Acme","period":null,"highlights":["cut costs by 30 %"]}],
		"education":[{"institution":"TU"}],"languages":["German"]}`,
	berth.TemplateDetailedResumeSummary: `{"headline":"Engineer","summary":"Five years.","skillGroups":[{"group":"backend","skills":["Go"]}],
		"experience":[{"title":"Engineer","achievements":[{"what":"moved to Go","result":"30 % cheaper"}]}],
		"projects":[{"name":"berth","description":"a dispatcher"}],"education":[],"strengths":["Go"],"gaps":[]}`,
	berth.TemplateResumeCustomize: `{"headline":"Go engineer","summary":"…","skills":["Go"],
		"experience":[{"title":"Engineer","bullets":["built"]}],
		"changes":[{"section":"skills","change":"Go first","reason":"asked for"}],"missing":["Kubernetes"]}`,
}

func TestSchema_EachBatchTemplate_OutputValidated(t *testing.T) {
	t.Parallel()
	for _, tm := range berth.StepTemplates() {
		raw, ok := Schema(tm)
		require.Equal(t, tm.Spec().Mode == berth.ModeBatch, ok, tm)
		if !ok {
			_, err := ValidateOutput(tm, []byte("{}"))
			require.Error(t, err)
			continue
		}
		require.Contains(t, string(raw), "draft/2020-12")

		good := goodOutputs[tm]
		out, err := ValidateOutput(tm, []byte(good))
		require.NoError(t, err, tm)
		require.JSONEq(t, good, string(out))
		require.NotContains(t, string(out), "\n")

		var schema struct{ Required []string }
		require.NoError(t, json.Unmarshal(raw, &schema))
		require.NotEmpty(t, schema.Required)
		for _, name := range schema.Required {
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(good), &object))
			delete(object, name)
			without, err := json.Marshal(object)
			require.NoError(t, err)
			_, err = ValidateOutput(tm, without)
			require.Equal(t, berth.CodeInvalidOutput, berth.CodeOf(err))
			require.ErrorContains(t, err, name)
		}
	}
}

func TestValidateOutput_TextAroundObject_ObjectFound(t *testing.T) {
	t.Parallel()
	good := goodOutputs[berth.TemplateJobSummary]
	for name, answer := range map[string]string{
		"fence":               "```json\n" + good + "\n```",
		"fence without name":  "```\n" + good + "\n```\n",
		"text around":         "Here it is:\n" + good + "\nI hope this helps {really}.",
		"reasoning before":    "<think>{\"title\":\"draft\"}</think>\n" + good,
		"braces before":       "I use {braces} a lot. " + good,
		"byte order mark":     "\ufeff" + good,
		"two, the first fits": good + "\n" + good,
	} {
		out, err := ValidateOutput(berth.TemplateJobSummary, []byte(answer))
		require.NoError(t, err, name)
		require.JSONEq(t, good, string(out), name)
	}
}

func TestValidateOutput_InvalidAnswer_ViolationNamed(t *testing.T) {
	t.Parallel()
	good := goodOutputs[berth.TemplateResumeSummary]
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
		_, err := ValidateOutput(berth.TemplateResumeSummary, []byte(row.answer))
		require.Equal(t, berth.CodeInvalidOutput, berth.CodeOf(err), name)
		require.ErrorContains(t, err, row.want, name)
		require.Less(t, len(err.Error()), 4000, name)
	}
}

func TestValidateOutput_ManyViolations_ListBounded(t *testing.T) {
	t.Parallel()
	items := strings.TrimSuffix(strings.Repeat("7,", 40), ",")
	answer := strings.Replace(goodOutputs[berth.TemplateJobSummary], `["Go","Redis"]`, "["+items+"]", 1)
	_, err := ValidateOutput(berth.TemplateJobSummary, []byte(answer))
	require.ErrorContains(t, err, "and 28 more")
}
