package llm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testtemplate"
)

// checkContext plans the steps of a built-in template, and checks the texts.
func checkContext(t *testing.T, c *Catalog, name berth.Template, tier berth.Tier, texts map[string]string) error {
	t.Helper()
	one := testtemplate.Find(t, name)
	steps, err := c.Plan(one, tier, nil)
	require.NoError(t, err)
	return c.CheckContext(one, steps, texts)
}

func TestCheckContext_TextsOfAStep_MustFitItsModel(t *testing.T) { // T26, FT19
	t.Parallel()
	c, err := LoadCatalog("")
	require.NoError(t, err)
	const big = 200_000 // bytes; 60,000 tokens
	text := strings.Repeat("x", big)
	check := func(template berth.Template, texts map[string]string) error {
		for _, tier := range []berth.Tier{berth.TierPaid, berth.TierFree} {
			if err := checkContext(t, c, template, tier, texts); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, check("job_match", map[string]string{"resume": "Go", "jobText": text}))
	require.NoError(t, check("job_match", nil))

	err = check("job_match", map[string]string{
		"resume": text[:len(text)-10], "jobText": text[:len(text)-10], "detailedResume": text, "notes": "short",
	})
	require.Equal(t, berth.CodeTooLarge, berth.CodeOf(err))
	require.ErrorContains(t, err, "variables.detailedResume: too long for the model deepseek-reasoner")
	require.ErrorContains(t, err, "60000 of them here, and at most 94304 fit")

	// Chinese text has more tokens for each character.
	require.Error(t, check("resume_summary", map[string]string{"resume": strings.Repeat("字", 210_000)}))
	require.NoError(t, check("resume_summary", map[string]string{"resume": strings.Repeat("x", 210_000)}))
}

func TestCheckContext_SizeUnknown_IsNotChecked(t *testing.T) {
	t.Parallel()
	cfg, err := LoadConfig("")
	require.NoError(t, err)
	m := cfg.Models["deepseek-chat"]
	m.ContextTokens = 0
	cfg.Models["deepseek-chat"] = m
	c, err := NewCatalog(cfg, Settings{})
	require.NoError(t, err)
	texts := map[string]string{"resume": strings.Repeat("字", 1_000_000)}
	require.NoError(t, checkContext(t, c, "resume_summary", berth.TierPaid, texts))
	require.Error(t, checkContext(t, c, "resume_summary", berth.TierFree, texts))
}

// T4: the cost of a call is that of its prompt and of a usual answer.
func TestCost_LongerPrompt_CostsMore(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1.03, Cost([]Message{TextMessage(RoleUser, strings.Repeat("a", 100))}), 0.001)
	require.InDelta(t, 4, Cost([]Message{TextMessage(RoleUser, strings.Repeat("a", 10_000))}), 0.001)
	require.InDelta(t, 2, Cost([]Message{{Parts: []Part{{ImageURL: "data:"}}}}), 0.001)
}
