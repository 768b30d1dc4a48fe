package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"berth"
)

// enumTypes are the types whose values are listed or described by a pattern in the description, and checked in requests. The lists are those of package
// berth. A field with an enum tag of its own, such as one that may be empty, keeps it.
var enumTypes = []func(huma.Registry){
	enumOf(codeNames()),
	enumOf(berth.Strategies()),
	enumOf(berth.NodeKinds()),
	enumOf(berth.NodeStates()),
	enumOf(berth.Affinities()),
	enumOf(berth.ExcludeReasons()),
	enumOf(berth.ConferenceStatuses()),
	enumOf(berth.DeliveryStates()),
	enumOf(berth.ParticipantRoles()),
	patternOf[berth.TaskStatus](berth.TaskStatusPattern, "PENDING, STREAMING, COMPLETED, FAILED, CANCELLED, or the status of a step, which the template names"),
	enumOf(berth.VariableKinds()),
	enumOf(reconcileRules()),
	enumOf(callOutcomes()),
	enumOf(usageDimensions()),
	func(r huma.Registry) {
		r.RegisterTypeAlias(reflect.TypeFor[berth.Credits](), reflect.TypeFor[float64]())
	},
}

// describeEnums makes the schema of each enum's type list its values.
func describeEnums(r huma.Registry) {
	for _, describe := range enumTypes {
		describe(r)
	}
}

func enumOf[T ~string](values []T) func(huma.Registry) {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	enumValues[reflect.TypeFor[T]()] = list
	return func(r huma.Registry) { r.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[enum[T]]()) }
}

func patternOf[T ~string](pattern, description string) func(huma.Registry) {
	patterns[reflect.TypeFor[T]()] = huma.Schema{Type: huma.TypeString, Pattern: pattern, Description: description}
	return func(r huma.Registry) { r.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[patterned[T]]()) }
}

var patterns = map[reflect.Type]huma.Schema{} // written at initialization only

// patterned replaces T in schemas.
type patterned[T ~string] string

// Schema returns a string with the pattern of T.
func (patterned[T]) Schema(huma.Registry) *huma.Schema { return new(patterns[reflect.TypeFor[T]()]) }

var enumValues = map[reflect.Type][]any{} // written at initialization only

// enum replaces T in schemas.
type enum[T ~string] string

// Schema returns a string with the values of T.
func (enum[T]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: enumValues[reflect.TypeFor[T]()]}
}

func reconcileRules() (names []berth.ReconcileRule) {
	for _, r := range berth.ReconcileRules() {
		names = append(names, r.Rule)
	}
	return names
}

func codeNames() (names []berth.Code) {
	for _, c := range berth.Codes() {
		names = append(names, c.Code)
	}
	return names
}
