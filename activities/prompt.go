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
	"berth/internal/template"
)

const (
	// maxFound is how many passages a search returns, of which those that the prompt already contains are left out.
	maxFound = 30
	// maxQuery bounds the text that a search uses, in bytes.
	maxQuery = 4000
)

// prompt loads what the step's prompt names, and renders it.
func (s *step) prompt(ctx context.Context) ([]llm.Message, error) {
	in, err := s.input(ctx)
	if err != nil {
		return nil, err
	}
	messages, err := s.template.Messages(ctx, string(s.in.Step.Name), s.in.Locale, in)
	if err != nil {
		return nil, err
	}
	return llm.MessagesOf(messages), nil
}

// input reads the variables and outputs that the prompt names, and the background.
func (s *step) input(ctx context.Context) (template.Input, error) {
	in := template.Input{Texts: map[string]string{}, Images: map[string]template.Image{}, Lists: map[string][]string{}}
	wanted := map[string]string{} // assets by name
	for name, id := range s.in.Variables {
		wanted[name] = id
	}
	outputs := map[string]bool{}
	for _, earlier := range s.template.Steps {
		if id, ok := s.in.Outputs[berth.StepName(earlier.ID)]; ok {
			wanted[earlier.Into], outputs[earlier.Into] = id, true
		}
	}
	maps.DeleteFunc(wanted, func(name string, _ string) bool { return !s.reads(name) })
	assets, err := s.Ledger.GetAssets(ctx, s.in.UserID, slices.Collect(maps.Values(wanted)))
	if err != nil {
		return in, fmt.Errorf("variables and outputs: %w", err)
	}
	for name, id := range wanted {
		asset, ok := assets[id]
		switch {
		case !ok && outputs[name]:
			return in, berth.Errorf(berth.CodeNotFound, "the output %s of an earlier step no longer exists", name)
		case !ok:
			return in, berth.Errorf(berth.CodeNotFound, "the asset of variable %s no longer exists", name)
		case asset.Kind == berth.AssetImage:
			in.Images[name] = template.Image{MediaType: asset.MediaType, Data: asset.Content}
		default:
			in.Texts[name] = string(asset.Content)
		}
	}
	s.texts = maps.Clone(in.Texts)
	maps.DeleteFunc(s.texts, func(name string, _ string) bool { return outputs[name] })
	return in, s.addBackground(ctx, in)
}

// checkContext returns an error if the texts of the task do not fit any upstream of the model. They did when it was accepted: the routing has
// changed since. Texts that fit are checked again only after another change: a slot is held meanwhile.
func (s *step) checkContext() error {
	now := s.Catalog(s.in.Step.Model)
	if now == s.fits || s.in.Forwarded != nil { // the room knows the size of a forwarded request
		return nil
	}
	err := now.CheckContext(s.template, []berth.Step{s.in.Step}, s.texts)
	if err == nil {
		s.fits = now
	}
	return err
}

// reads reports whether the prompt names a variable or an output, or a search of the prompt's background begins with it.
func (s *step) reads(name string) bool {
	return slices.Contains(s.spec.Reads, name) || slices.ContainsFunc(s.template.Background, func(b template.Background) bool {
		return slices.Contains(s.spec.Reads, b.Name) && slices.Contains(b.Matching, name)
	})
}

// addBackground adds the stored texts of the user that the prompt names.
func (s *step) addBackground(ctx context.Context, in template.Input) error {
	given := slices.Collect(maps.Values(s.in.Variables))
	for _, b := range s.template.Background {
		if !slices.Contains(s.spec.Reads, b.Name) {
			continue
		}
		if b.Results != "" {
			results, err := s.Ledger.LatestResults(ctx, s.in.UserID, b.Results, b.Max)
			if err != nil {
				return fmt.Errorf("stored results: %w", err)
			}
			for _, a := range results {
				in.Lists[b.Name] = append(in.Lists[b.Name], string(a.Content))
			}
			continue
		}
		query := ""
		for _, name := range b.Matching {
			query = cmp.Or(query, in.Texts[name])
		}
		passages, err := s.Ledger.SearchPassages(ctx, s.in.UserID, words(query), maxFound)
		if err != nil {
			return fmt.Errorf("search passages: %w", err)
		}
		for _, p := range passages {
			// The prompt already contains the texts of this task.
			if len(in.Lists[b.Name]) < b.Max && !slices.Contains(given, p.AssetID) {
				in.Lists[b.Name] = append(in.Lists[b.Name], p.Text)
			}
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
