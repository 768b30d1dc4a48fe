package berth_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestTemplates_EachEntry_IsComplete(t *testing.T) { // T1, T17
	t.Parallel()
	require.NotEmpty(t, berth.Templates())
	for _, name := range berth.StepTemplates() {
		spec := name.Spec()
		require.Equal(t, name, spec.Name)
		require.NotEmpty(t, spec.Mode, name)
		require.NotEmpty(t, spec.Variables, name)
		require.NotEmpty(t, spec.Stages, name)
		if !spec.Submittable() {
			require.Empty(t, spec.Steps(true), name)
			continue
		}
		require.Contains(t, spec.Variables, variable(spec, spec.ImageText), "the text of an image has a variable")
		require.Equal(t, name, spec.Chain[len(spec.Chain)-1].Template, "the last step makes the result")
		for _, step := range spec.Steps(true) {
			require.NotEmpty(t, step.Template.Spec().Name, "step %s of %s", step.Name, name)
		}
	}
}

func variable(spec berth.TemplateSpec, name string) berth.Variable {
	for _, v := range spec.Variables {
		if v.Name == name {
			return v
		}
	}
	return berth.Variable{}
}

func TestTemplates_WithImage_StartWithTheVisionStep(t *testing.T) { // T1, T17
	t.Parallel()
	vision := berth.StepSpec{Name: berth.StepOCR, Template: berth.TemplateJobVision}
	for _, name := range berth.Templates() {
		plain := name.Spec().Steps(false)
		require.NotEmpty(t, plain, name)
		require.Equal(t, append([]berth.StepSpec{vision}, plain...), name.Spec().Steps(true))
	}
	require.Equal(t, []berth.StepSpec{
		{Name: berth.StepSummary, Template: berth.TemplateJobSummary}, {Name: berth.StepMatch, Template: berth.TemplateJobMatch},
	}, berth.TemplateJobMatch.Spec().Steps(false))
}

func TestTemplates_StepOnlyOrUnknown_CannotBeSubmitted(t *testing.T) {
	t.Parallel()
	require.False(t, berth.TemplateJobVision.Spec().Submittable())
	require.NotContains(t, berth.Templates(), berth.TemplateJobVision)
	require.False(t, berth.Template("horoscope").Spec().Submittable())
	require.Empty(t, berth.Template("horoscope").Spec().Steps(false))
}

// Every batch template states what happens to a truncated answer.
func TestTemplates_Batch_RuleForTruncatedAnswers(t *testing.T) { // B3
	t.Parallel()
	for _, name := range berth.StepTemplates() {
		spec := name.Spec()
		if spec.Mode == berth.ModeBatch {
			require.Contains(t, []berth.Truncation{berth.TruncatedContinues, berth.TruncatedFails}, spec.Truncated, name)
		} else {
			require.Empty(t, spec.Truncated, name)
		}
	}
}
