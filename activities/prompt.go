package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth"
	"berth/internal/llm"
)

// Bounds of the background in a prompt.
const (
	maxPassages  = 6
	maxFound     = 30
	maxSummaries = 3
	// maxQuery bounds the text that a search uses, in bytes.
	maxQuery = 4000
)

// prompt loads the step's inputs by id and fills its template.
func (s *step) prompt(ctx context.Context) ([]llm.Message, error) {
	in, err := s.input(ctx)
	if err != nil {
		return nil, err
	}
	return llm.Prompt(s.in.Step.Template, s.in.Locale, in)
}

func (s *step) input(ctx context.Context) (llm.Input, error) {
	spec := s.in.Step.Template.Spec()
	in := llm.Input{Variables: map[string]string{}, Outputs: map[berth.StepName]string{}}
	variables := map[string]string{}
	for name, id := range s.in.Variables {
		if spec.Reads(name) {
			variables[name] = id
		}
	}
	ids := slices.Concat(slices.Collect(maps.Values(variables)), slices.Collect(maps.Values(s.in.Outputs)))
	assets, err := s.Ledger.GetAssets(ctx, s.in.UserID, ids)
	if err != nil {
		return in, fmt.Errorf("variables and outputs: %w", err)
	}
	for name, id := range variables {
		asset, ok := assets[id]
		switch {
		case !ok:
			return in, berth.Errorf(berth.CodeNotFound, "the asset of variable %s no longer exists", name)
		case asset.Kind == berth.AssetImage:
			in.Image = &llm.Image{MediaType: asset.MediaType, Data: asset.Content}
		default:
			in.Variables[name] = string(asset.Content)
		}
	}
	for name, id := range s.in.Outputs {
		asset, ok := assets[id]
		switch {
		case !ok:
			return in, berth.Errorf(berth.CodeNotFound, "the output of step %s no longer exists", name)
		case name == berth.StepOCR:
			in.Variables[s.in.Template.Spec().ImageText] = string(asset.Content)
		default:
			in.Outputs[name] = string(asset.Content)
		}
	}
	if !spec.Background {
		return in, nil
	}
	return in, s.addBackground(ctx, &in)
}

// addBackground adds what the user has stored: summaries of résumés, and the passages that match the posting.
func (s *step) addBackground(ctx context.Context, in *llm.Input) error {
	summaries, err := s.Ledger.LatestResults(ctx, s.in.UserID, berth.TemplateResumeSummary, maxSummaries)
	if err != nil {
		return fmt.Errorf("stored summaries: %w", err)
	}
	for _, a := range summaries {
		in.Summaries = append(in.Summaries, string(a.Content))
	}
	query := cmp.Or(in.Outputs[berth.StepSummary], in.Variables[berth.VarJobText])
	passages, err := s.Ledger.SearchPassages(ctx, s.in.UserID, words(query), maxFound)
	if err != nil {
		return fmt.Errorf("search passages: %w", err)
	}
	given := slices.Collect(maps.Values(s.in.Variables))
	for _, p := range passages {
		if len(in.Passages) == maxPassages {
			break
		}
		// The prompt already contains the texts of this task.
		if !slices.Contains(given, p.AssetID) {
			in.Passages = append(in.Passages, p.Text)
		}
	}
	return nil
}

// words returns the values of a JSON summary, or the text itself.
func words(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) == nil {
		var b strings.Builder
		values(v, &b)
		text = b.String()
	}
	if len(text) > maxQuery {
		text = strings.ToValidUTF8(text[:maxQuery], "")
	}
	return text
}

func values(v any, b *strings.Builder) {
	switch v := v.(type) {
	case string:
		b.WriteString(v)
		b.WriteByte(' ')
	case []any:
		for _, e := range v {
			values(e, b)
		}
	case map[string]any:
		// The order of the words does not matter to the search.
		for _, e := range v {
			values(e, b)
		}
	}
}
