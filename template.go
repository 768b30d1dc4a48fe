package berth

// Template is the name of what an LLM task produces, such as ticket_summary.
type Template string

// StepName is the id of one model call of a template.
type StepName string

// Truncation is what happens to a truncated answer.
type Truncation string

// The rules for truncated answers.
const (
	TruncatedContinues Truncation = "continue" // the rest is requested
	TruncatedFails     Truncation = "fail"
)

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
