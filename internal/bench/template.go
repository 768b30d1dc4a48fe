package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"berth"
	"berth/client"
)

// The templates of the measured tasks: one streamed answer, and a chain of chainSteps model calls.
const (
	streamTemplate berth.Template = "bench_stream"
	chainTemplate  berth.Template = "bench_chain"
)

// The instructions by which provider knows a step.
const (
	readInstruction    = "Bench: transcribe the image."
	summaryInstruction = "Bench: summarise as JSON."
)

var templateFiles = map[berth.Template]map[string]string{
	streamTemplate: {"bench.prompt": `---
title: Benchmark
credits: 1
models: {paid: ` + slotModel + `, free: glm-4.5-flash}
variables: [{name: text, required: true}]
---
{{role "system"}}Bench: answer.{{role "user"}}{{document "text" text}}
`},
	chainTemplate: {
		"template.yaml": `title: Benchmark
variables: [{name: image, kind: image, required: true}]
steps:
  - {id: read, into: text, models: glm-4.1v-thinking-flash}
  - {id: summary, into: summary, models: {paid: deepseek-chat, free: glm-4.5-flash}, schema: {title: string, skills(array): string}}
  - {id: answer, models: {paid: deepseek-reasoner, free: glm-4.5-flash}}
`,
		"read.prompt":    readInstruction + "{{media url=image}}",
		"summary.prompt": summaryInstruction + `{{schema}}{{document "text" text}}`,
		"answer.prompt":  `Bench: answer.{{document "summary" summary}}`,
	},
}

// putTemplates stores the templates of the measured tasks.
func (h *stack) putTemplates(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(templateFiles)) {
		if _, err := h.client.PutTemplate(ctx, name, client.TemplateFiles{Files: templateFiles[name]}); err != nil {
			return fmt.Errorf("template %s: %w", name, err)
		}
	}
	return nil
}
