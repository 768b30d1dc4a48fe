package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth"
	"berth/internal/schema"
)

const (
	// maxProblems bounds the number of violations that are reported to the model.
	maxProblems = 12
	// maxCandidates bounds the search for an object in an answer with many braces.
	maxCandidates = 64
)

// ValidateOutput finds the JSON object in a model's answer, bare, in a code fence or with text around it, and validates it
// against a schema. It returns the object without white space. Its error has berth.CodeInvalidOutput and names the violations
// with their places, for RepairPrompt.
func ValidateOutput(want *jsonschema.Schema, answer []byte) (json.RawMessage, error) {
	found, parseErr := objects(unwrapped(answer))
	var longest json.RawMessage
	var misfit error
	for _, raw := range found {
		raw, err := canonical(raw)
		if err != nil {
			return nil, fmt.Errorf("rewrite answer: %w", err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err == nil {
			err = schema.Validate(want, v)
		}
		if err == nil {
			return raw, nil
		}
		if len(raw) > len(longest) {
			longest, misfit = raw, err
		}
	}
	// A truncated answer contains small complete objects: then the truncation is the error to report.
	if misfit == nil || (parseErr != nil && len(longest) < len(answer)/2) {
		return nil, berth.Errorf(berth.CodeInvalidOutput, "the answer contains no complete JSON object: %s", parseErr)
	}
	return nil, berth.Errorf(berth.CodeInvalidOutput, "%s%s", mismatched, problems(misfit))
}

const mismatched = "the answer does not match the schema: "

// objects returns the outermost JSON objects of a text and the first parse error. A reasoning model may draft an object
// before the final one, so the caller takes the first that is valid, not the first that parses.
func objects(text []byte) (found []json.RawMessage, fault error) {
	for range maxCandidates {
		i := bytes.IndexByte(text, '{')
		if i < 0 {
			break
		}
		text = text[i:]
		dec := json.NewDecoder(bytes.NewReader(text))
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if err == nil {
			found = append(found, raw)
			text = text[dec.InputOffset():]
			continue
		}
		if strict, size := lenient(text); size > 0 {
			found = append(found, strict)
			text = text[size:]
			continue
		}
		if fault == nil {
			fault = err
		}
		text = text[1:]
	}
	if len(found) == 0 && fault == nil {
		fault = errors.New("it contains no {")
	}
	return found, fault
}

// problems describes the violations of a schema, each with its place.
func problems(err error) string {
	var out []string
	for _, p := range schema.Problems(err) {
		at := "at the top"
		if len(p.Path) > 0 {
			at = "at /" + strings.Join(p.Path, "/")
		}
		out = append(out, shorten(at+": "+p.Message, 300))
	}
	if extra := len(out) - maxProblems; extra > 0 {
		out = append(out[:maxProblems], fmt.Sprintf("and %d more", extra))
	}
	return strings.Join(out, "; ")
}

// plainProblem is a problem without anything of the answer.
var plainProblem = regexp.MustCompile(`^at [\w /]+: (missing propert(y|ies) '\w+'(, '\w+')*|got \w+, want [\w ,]+|\w+: got [\d.e+-]+, want [\d.e+-]+)$`)

// mismatchReason returns what users read about an answer that ValidateOutput refuses: nothing that the answer contains.
func mismatchReason(err error) string {
	var mismatch *berth.Error
	if !errors.As(err, &mismatch) {
		return ""
	}
	list, ok := strings.CutPrefix(mismatch.Message, mismatched)
	if !ok {
		return "no complete JSON object"
	}
	var shown []string
	for _, problem := range strings.Split(list, "; ") {
		if plainProblem.MatchString(problem) {
			shown = append(shown, problem)
		}
	}
	if len(shown) == 0 {
		return "another form of JSON"
	}
	return shorten(strings.Join(shown, "; "), maxShown)
}

// shorten truncates a text to at most limit bytes, never within a character.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
