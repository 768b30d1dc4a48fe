package berth

import "slices"

// Template is the name of what an LLM task produces.
type Template string

// The names of the templates in the table below.
const (
	TemplateJobMatch              Template = "job_match"
	TemplateInterviewPrep         Template = "interview_prep"
	TemplateResumeCustomize       Template = "resume_customize"
	TemplateResumeSummary         Template = "resume_summary"
	TemplateDetailedResumeSummary Template = "detailed_resume_summary"
	TemplateJobSummary            Template = "job_summary"
	TemplateJobVision             Template = "job_vision"
)

// Names of input variables.
const (
	VarResume         = "resume"
	VarJobText        = "jobText"
	VarJobImage       = "jobImage"
	VarImage          = "image"
	VarDetailedResume = "detailedResume"
	VarNotes          = "notes"
)

// EvidenceVariables returns the variables whose texts are about the user: later tasks search them for background. A posting
// would be the best match for its own words.
func EvidenceVariables() []string { return []string{VarResume, VarDetailedResume} }

// StepName is the name of one model call of a task.
type StepName string

// The names of the steps in the table below.
const (
	StepOCR       StepName = "ocr"
	StepSummary   StepName = "summary"
	StepMatch     StepName = "match"
	StepInterview StepName = "interview"
	StepCustomize StepName = "customize"
)

// TemplateSpec describes a template. A new template needs an entry in the table below, a directory of prompts
// internal/llm/prompts/<name>, a route in internal/llm/routing.yaml, and its title on the page in
// api/console/src/lib/i18n.svelte.ts; everything else is derived from these.
type TemplateSpec struct {
	Name Template
	// Mode is how a model answers the template's prompt. A batch template needs a schema.json beside its prompts.
	Mode Mode
	// Chain lists the model calls of a task in order; empty for a template that is only a step of others.
	Chain []StepSpec
	// Variables lists the inputs of a task, or of the step, in the order in which a form shows them.
	Variables []Variable
	// ImageText is the variable that receives the text read from an image.
	ImageText string
	// Stages lists the stages of the template's model call in order. It starts in the first; a model that streams
	// announces the others.
	Stages []Stage
	// Truncated is what happens to a batch answer that reached its token limit and is therefore no complete JSON. A truncated
	// stream is complete as far as it goes: it is marked.
	Truncated Truncation
	// Background adds the user's stored résumé summaries and matching passages to the prompt.
	Background bool
}

// Truncation is what happens to a truncated answer.
type Truncation string

// The rules for truncated answers.
const (
	TruncatedContinues Truncation = "continue" // the rest is requested
	TruncatedFails     Truncation = "fail"
)

// StepSpec is one model call of a template's chain: the step's name and the template of its prompt.
type StepSpec struct {
	Name     StepName
	Template Template
}

// imageStep reads the image of a task. It precedes the chain of any template whose input contains an image.
var imageStep = StepSpec{Name: StepOCR, Template: TemplateJobVision}

var templates = []TemplateSpec{
	{
		Name: TemplateJobMatch, Mode: ModeStream,
		Chain:     []StepSpec{{StepSummary, TemplateJobSummary}, {StepMatch, TemplateJobMatch}},
		Variables: slices.Concat([]Variable{requiredText(VarResume)}, posting(), texts(VarDetailedResume, VarNotes)),
		ImageText: VarJobText, Background: true,
		Stages: []Stage{StageIngest, StageCompare, StageScore, StageDeliver},
	},
	{
		Name: TemplateInterviewPrep, Mode: ModeStream,
		Chain:     []StepSpec{{StepInterview, TemplateInterviewPrep}},
		Variables: slices.Concat([]Variable{requiredText(VarResume)}, posting(), texts(VarDetailedResume, VarNotes)),
		ImageText: VarJobText, Stages: []Stage{StageAnswer},
	},
	{
		Name: TemplateResumeCustomize, Mode: ModeBatch, Truncated: TruncatedContinues,
		Chain:     []StepSpec{{StepCustomize, TemplateResumeCustomize}},
		Variables: slices.Concat([]Variable{requiredText(VarResume)}, posting(), texts(VarDetailedResume, VarNotes)),
		ImageText: VarJobText, Stages: []Stage{StageAnswer},
	},
	{
		Name: TemplateResumeSummary, Mode: ModeBatch, Truncated: TruncatedFails,
		Chain:     []StepSpec{{StepSummary, TemplateResumeSummary}},
		Variables: slices.Concat(oneOf("resume", text(VarResume), image(VarImage)), texts(VarNotes)),
		ImageText: VarResume, Stages: []Stage{StageSummary},
	},
	{
		Name: TemplateDetailedResumeSummary, Mode: ModeBatch, Truncated: TruncatedContinues,
		Chain:     []StepSpec{{StepSummary, TemplateDetailedResumeSummary}},
		Variables: slices.Concat(oneOf("resume", text(VarResume), image(VarImage)), texts(VarNotes)),
		ImageText: VarResume, Stages: []Stage{StageSummary},
	},
	{
		Name: TemplateJobSummary, Mode: ModeBatch, Truncated: TruncatedFails,
		Chain:     []StepSpec{{StepSummary, TemplateJobSummary}},
		Variables: slices.Concat(posting(), texts(VarNotes)),
		ImageText: VarJobText, Stages: []Stage{StageSummary},
	},
	{
		Name: TemplateJobVision, Mode: ModeVision,
		Variables: []Variable{image(VarJobImage), image(VarImage)},
		Stages:    []Stage{StageOCR},
	},
}

// Templates returns the templates that can be submitted, in the order in which a form shows them.
func Templates() []Template {
	var names []Template
	for _, s := range templates {
		if s.Submittable() {
			names = append(names, s.Name)
		}
	}
	return names
}

// StepTemplates returns every template that a model is called with, those that cannot be submitted included.
func StepTemplates() []Template {
	names := make([]Template, len(templates))
	for i, s := range templates {
		names[i] = s.Name
	}
	return names
}

// Spec returns the template's description, the zero value for an unknown template.
func (t Template) Spec() TemplateSpec {
	i := slices.IndexFunc(templates, func(s TemplateSpec) bool { return s.Name == t })
	if i < 0 {
		return TemplateSpec{}
	}
	return templates[i]
}

// Submittable reports whether a task of the template can be submitted.
func (s TemplateSpec) Submittable() bool { return len(s.Chain) > 0 }

// Steps returns the model calls of a task in order, nil for a template that cannot be submitted.
func (s TemplateSpec) Steps(hasImage bool) []StepSpec {
	if !hasImage || !s.Submittable() {
		return s.Chain
	}
	return slices.Concat([]StepSpec{imageStep}, s.Chain)
}

// Reads reports whether the template's own prompt is filled from the variable. Only vision prompts read images.
func (s TemplateSpec) Reads(variable string) bool {
	return slices.ContainsFunc(s.Variables, func(v Variable) bool {
		return v.Name == variable && v.isImage() == (s.Mode == ModeVision)
	})
}

// FirstStage returns the stage in which a model call of the template starts.
func (s TemplateSpec) FirstStage() Stage {
	if len(s.Stages) == 0 {
		return StageAnswer
	}
	return s.Stages[0]
}

// VariableKind is the form in which a variable's value is given.
type VariableKind string

// The kinds of values.
const (
	KindText       VariableKind = "text"        // text in the request itself
	KindTextAsset  VariableKind = "text_asset"  // the id of a stored text
	KindImageAsset VariableKind = "image_asset" // the id of a stored image
)

// VariableKinds returns all kinds of values.
func VariableKinds() []VariableKind { return []VariableKind{KindText, KindTextAsset, KindImageAsset} }

// Variable is one input of a template.
type Variable struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
	// Group names alternatives: exactly one variable of a group must be given. Empty for a variable without any.
	Group string         `json:"group,omitempty"`
	Kinds []VariableKind `json:"kinds"`
}

func (v Variable) isImage() bool { return slices.Contains(v.Kinds, KindImageAsset) }

func text(name string) Variable {
	return Variable{Name: name, Kinds: []VariableKind{KindText, KindTextAsset}}
}

func image(name string) Variable {
	return Variable{Name: name, Kinds: []VariableKind{KindImageAsset}}
}

func requiredText(name string) Variable {
	v := text(name)
	v.Required = true
	return v
}

func texts(names ...string) []Variable {
	vars := make([]Variable, len(names))
	for i, name := range names {
		vars[i] = text(name)
	}
	return vars
}

func oneOf(group string, vars ...Variable) []Variable {
	for i := range vars {
		vars[i].Group = group
	}
	return vars
}

// posting is a job posting, given as text or as an image.
func posting() []Variable {
	return oneOf("job", text(VarJobText), image(VarJobImage), image(VarImage))
}
