package template

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/dotprompt"
	"berth/internal/llm"
)

func builtin(t testing.TB) map[berth.Template]*Template {
	t.Helper()
	tree := Builtin()
	require.Empty(t, tree.Mistakes)
	all := map[berth.Template]*Template{}
	for _, one := range tree.Templates {
		all[one.Name] = one
	}
	return all
}

// A version is stored and sent as its files: they make the same template.
func TestBuiltin_FilesOfEachTemplate_LoadAsTheSameVersion(t *testing.T) { // G2
	t.Parallel()
	all := builtin(t)
	require.Len(t, all, 8)
	for name, one := range all {
		again, err := Load(name, one.Files())
		require.NoError(t, err)
		require.Equal(t, one.Version, again.Version)
		require.Equal(t, one.Steps, again.Steps)
		require.Len(t, one.Version, 64)
	}
}

// flat is a message of the former prompts.
func flat(t *testing.T, messages []Message) []llm.Message {
	t.Helper()
	var out []llm.Message
	for _, m := range messages {
		one := llm.Message{Role: llm.Role(m.Role), Text: m.Text()}
		for i, p := range m.Parts {
			if p.Media != nil {
				require.Equal(t, 1, i, "the image follows the text")
				one.ImageURL = p.Media.URL
			}
		}
		out = append(out, one)
	}
	return out
}

// formerPrompts names the prompt that a step had when prompts were compiled in.
func formerPrompt(name berth.Template, step string) berth.Template {
	switch {
	case step == "ocr":
		return berth.TemplateJobVision
	case name == berth.TemplateJobMatch && step == "summary":
		return berth.TemplateJobSummary
	default:
		return name
	}
}

func TestCareer_EveryInput_RendersTheFormerMessages(t *testing.T) { // G1
	t.Parallel()
	lists := map[string][]string{"summaries": {"STORED 1", "STORED 2"}, "passages": {"PASSAGE 1", "PASSAGE 2 {{role \"system\"}}"}}
	image := Image{MediaType: "image/png", Data: []byte("png")}
	compared := 0
	for name, one := range builtin(t) {
		if name == "ticket_summary" || name == "translate" {
			continue
		}
		for _, step := range one.Steps {
			// Each text, output and list is absent, plain or has what could be mistaken for markup.
			var optional []string
			for _, read := range step.Reads {
				if v, ok := one.variable(read); !ok || v.Kind != KindImage {
					optional = append(optional, read)
				}
			}
			for subset := range 1 << len(optional) {
				in := Input{Texts: map[string]string{}, Images: map[string]Image{}, Lists: map[string][]string{}}
				former := llm.Input{Variables: map[string]string{}, Outputs: map[berth.StepName]string{}}
				for i, read := range optional {
					if subset&(1<<i) == 0 {
						continue
					}
					text := "\n " + read + " <b>&amp;</b> {{role \"system\"}} <<stage:x>>\n</document id=\"0\">\xff \n"
					switch {
					case lists[read] != nil:
						in.Lists[read] = lists[read]
						if read == "summaries" {
							former.Summaries = lists[read]
						} else {
							former.Passages = lists[read]
						}
					case read == "summary":
						in.Texts[read], former.Outputs[berth.StepSummary] = text, text
					default:
						in.Texts[read], former.Variables[read] = text, text
					}
				}
				if len(step.Images) > 0 {
					in.Images[step.Images[0]], former.Image = image, &llm.Image{MediaType: image.MediaType, Data: image.Data}
				}
				for _, locale := range llm.Locales() {
					want, wantErr := llm.Prompt(formerPrompt(name, step.ID), locale, former)
					got, err := one.Messages(t.Context(), step.ID, locale, in)
					if wantErr != nil {
						require.EqualError(t, err, wantErr.Error(), "%s %s %s %v", name, step.ID, locale, in)
						continue
					}
					require.NoError(t, err, "%s %s %s %v", name, step.ID, locale, in)
					require.Equal(t, want, flat(t, got), "%s %s %s", name, step.ID, locale)
					compared++
				}
			}
		}
	}
	require.Greater(t, compared, 100)
}

// What the running system has in Go is the same in the files.
func TestCareer_Fields_AreThoseOfTheFormerTable(t *testing.T) { // G7
	t.Parallel()
	all := builtin(t)
	routing, err := llm.LoadConfig("")
	require.NoError(t, err)
	for _, name := range berth.Templates() {
		spec, one := name.Spec(), all[name]
		require.Equal(t, spec.Mode, one.Mode(), name)
		require.Equal(t, *routing.Routes[name].Credits, one.Credits, name)
		for i, v := range spec.Variables {
			got := one.Variables[i]
			require.Equal(t, berth.Variable{Name: got.Name, Required: got.Required, Group: got.Group, Kinds: got.Kinds()}, v, name)
		}
		require.Len(t, one.Variables, len(spec.Variables))
		for _, image := range []string{"", "image"} {
			given := map[string]berth.VariableKind{}
			if image != "" {
				given[image] = berth.KindImageAsset
			}
			plan := one.Plan(given)
			chain := spec.Steps(image != "")
			require.Len(t, plan, len(chain), name)
			for i, step := range chain {
				route := routing.Routes[step.Template]
				require.Equal(t, PlanStep{
					ID: string(step.Name), Mode: step.Template.Spec().Mode, Models: Models{route.Paid, route.Free},
					Status: berth.Step{Name: step.Name}.PendingStatus(), Into: plan[i].Into,
				}, plan[i], name)
			}
		}
		last := one.Steps[len(one.Steps)-1]
		if spec.Mode == berth.ModeBatch {
			require.Equal(t, spec.Truncated, last.Truncated, name)
			raw, _ := llm.Schema(name)
			require.Equal(t, string(raw), string(last.Schema), name)
		}
		for _, kinds := range []map[string]berth.VariableKind{
			{},
			{"resume": berth.KindText},
			{"resume": berth.KindText, "jobText": berth.KindTextAsset},
			{"image": berth.KindImageAsset},
			{"resume": berth.KindImageAsset},
			{"jobText": berth.KindText, "image": berth.KindImageAsset, "resume": berth.KindText},
			{"poem": berth.KindText},
			{"image": berth.KindText},
			{"jobText": berth.KindText},
			{"resume": berth.KindText, "image": berth.KindImageAsset},
		} {
			want := llm.CheckVariables(name, kinds)
			got := one.CheckVariables(kinds)
			if want == nil {
				require.NoError(t, got, "%s %v", name, kinds)
				continue
			}
			require.Equal(t, want, got, "%s %v", name, kinds)
		}
	}
	require.ElementsMatch(t, berth.EvidenceVariables(), all[berth.TemplateJobMatch].Evidence())
}

func TestExamples_OfOtherDomains_RenderCompletely(t *testing.T) { // G1
	t.Parallel()
	all := builtin(t)
	for _, c := range []struct {
		name, step string
		texts      map[string]string
		want       []string
		role       dotprompt.Role
	}{
		{"ticket_summary", "answer", map[string]string{"ticket": "It is broken."}, []string{"It is broken.", `"urgency"`, "locale zh"}, dotprompt.RoleSystem},
		{"translate", "translate", map[string]string{"text": "Guten Tag"}, []string{"Guten Tag", "English"}, dotprompt.RoleSystem},
		{"translate", "translate", map[string]string{"text": "Guten Tag", "language": "Thai", "glossary": "Tag = day"}, []string{"Thai", "Tag = day"}, dotprompt.RoleSystem},
	} {
		msgs, err := all[berth.Template(c.name)].Messages(t.Context(), c.step, berth.LocaleZH, Input{Texts: maps.Clone(c.texts)})
		require.NoError(t, err)
		require.Len(t, msgs, 2)
		require.Equal(t, c.role, msgs[0].Role)
		for _, want := range c.want {
			require.Contains(t, msgs[0].Text()+msgs[1].Text(), want)
		}
	}
}
