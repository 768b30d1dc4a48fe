package doctor

import (
	"fmt"
	"strings"

	"berth/internal/llm"
)

// models checks that calls of the models can be made.
func (d *doctor) models(catalog *llm.Catalog) {
	const subject, advice = "models", "set the keys of the providers, or BERTH_LOCAL_MODEL_URL to the address of the model simulator"
	var unserved []string
	models := catalog.Models()
	for _, m := range models {
		if err := catalog.Served(m.Name); err != nil {
			unserved = append(unserved, fmt.Sprintf("%s (%s)", m.Name, err))
		}
	}
	switch len(unserved) {
	case 0:
		d.add(OK, subject, "", "all %d models have what their calls need; none was made", len(models))
	case len(models):
		d.add(Warning, subject, advice, "all tasks are refused, because no model can be called: %s", strings.Join(unserved, "; "))
	default:
		d.add(Warning, subject, advice, "tasks of these models are refused: %s", strings.Join(unserved, "; "))
	}
}
