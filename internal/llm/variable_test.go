package llm

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestCheckVariables_EachTemplate_FirstInvalidNamed(t *testing.T) {
	t.Parallel()
	type vars = map[string]berth.VariableKind
	const text, stored, image = berth.KindText, berth.KindTextAsset, berth.KindImageAsset
	for name, row := range map[string]struct {
		template berth.Template
		vars     vars
		field    string // empty: accepted
	}{
		"match with text":          {berth.TemplateJobMatch, vars{"resume": text, "jobText": stored}, ""},
		"match with jobImage":      {berth.TemplateJobMatch, vars{"resume": stored, "jobImage": image}, ""},
		"match with image":         {berth.TemplateJobMatch, vars{"resume": stored, "image": image}, ""},
		"match with everything":    {berth.TemplateJobMatch, vars{"resume": text, "jobText": text, "notes": text, "detailedResume": stored}, ""},
		"match with nothing":       {berth.TemplateJobMatch, nil, "variables.resume"},
		"match without posting":    {berth.TemplateJobMatch, vars{"resume": text}, "variables.jobText"},
		"match without résumé":     {berth.TemplateJobMatch, vars{"jobText": text}, "variables.resume"},
		"posting twice":            {berth.TemplateJobMatch, vars{"resume": text, "jobText": text, "jobImage": image}, "variables.jobImage"},
		"posting as two images":    {berth.TemplateJobMatch, vars{"resume": text, "image": image, "jobImage": image}, "variables.image"},
		"résumé as image":          {berth.TemplateJobMatch, vars{"resume": image, "jobText": text}, "variables.resume"},
		"image as text":            {berth.TemplateJobMatch, vars{"resume": text, "jobImage": text}, "variables.jobImage"},
		"unknown variable":         {berth.TemplateJobMatch, vars{"resume": text, "jobText": text, "cv": text}, "variables.cv"},
		"interview":                {berth.TemplateInterviewPrep, vars{"resume": text, "image": image}, ""},
		"customise":                {berth.TemplateResumeCustomize, vars{"resume": text, "jobText": text, "detailedResume": text, "notes": text}, ""},
		"résumé summary":           {berth.TemplateResumeSummary, vars{"resume": text}, ""},
		"résumé summary of image":  {berth.TemplateResumeSummary, vars{"image": image}, ""},
		"résumé summary, jobImage": {berth.TemplateResumeSummary, vars{"jobImage": image}, "variables.jobImage"},
		"résumé summary of none":   {berth.TemplateDetailedResumeSummary, nil, "variables.resume"},
		"résumé summary of both":   {berth.TemplateDetailedResumeSummary, vars{"resume": text, "image": image}, "variables.image"},
		"job summary":              {berth.TemplateJobSummary, vars{"jobText": text}, ""},
		"job summary of image":     {berth.TemplateJobSummary, vars{"jobImage": image}, ""},
		"job summary of none":      {berth.TemplateJobSummary, vars{}, "variables.jobText"},
		"unknown template":         {"horoscope", vars{}, "template"},
		"vision is a step only":    {berth.TemplateJobVision, vars{"image": image}, "template"},
	} {
		err := CheckVariables(row.template, row.vars)
		if row.field == "" {
			require.NoError(t, err, name)
			continue
		}
		var e *berth.Error
		require.True(t, errors.As(err, &e), name)
		require.Equal(t, berth.CodeInvalid, e.Code, name)
		require.Equal(t, row.field, e.Field, name)
		require.NotEmpty(t, e.Message, name)
	}
}

func TestTemplates_EachOne_HasVariables(t *testing.T) {
	t.Parallel()
	for _, tm := range berth.Templates() {
		require.NotEmpty(t, tm.Spec().Variables, tm)
	}
	require.True(t, HasImage(map[string]berth.VariableKind{"jobImage": berth.KindImageAsset}))
	require.False(t, HasImage(map[string]berth.VariableKind{"resume": berth.KindText, "jobText": berth.KindTextAsset}))
	require.Equal(t, berth.VarResume, berth.TemplateDetailedResumeSummary.Spec().ImageText)
	require.Equal(t, berth.VarJobText, berth.TemplateJobMatch.Spec().ImageText)
}

// A variable that a prompt uses must be one that Reads reports, otherwise it would be missing from the prompt.
func TestPrompt_EachVariable_UsedAsSpecReads(t *testing.T) {
	t.Parallel()
	const mark = "marker text"
	inputs := map[string]Input{
		berth.VarResume:         texts(mark, "x", "", ""),
		berth.VarJobText:        texts("x", mark, "", ""),
		berth.VarDetailedResume: texts("x", "x", mark, ""),
		berth.VarNotes:          texts("x", "x", "", mark),
	}
	for _, tmpl := range berth.StepTemplates() {
		require.Equal(t, tmpl == berth.TemplateJobVision, tmpl.Spec().Reads(berth.VarImage), tmpl)
		require.Equal(t, tmpl == berth.TemplateJobVision, tmpl.Spec().Reads(berth.VarJobImage), tmpl)
		if tmpl == berth.TemplateJobVision {
			continue
		}
		for name, in := range inputs {
			messages, err := Prompt(tmpl, berth.LocaleEN, in)
			require.NoError(t, err)
			if name == berth.VarDetailedResume && !tmpl.Spec().Reads(name) {
				continue // some prompts have a place for it, but tasks of that template never have it
			}
			require.Equal(t, strings.Contains(messages[1].Text, mark), tmpl.Spec().Reads(name), "%s %s", tmpl, name)
		}
	}
}
