package llm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestCheckContext_TextsOfAStep_MustFitItsModel(t *testing.T) { // T26, FT19
	t.Parallel()
	c, err := LoadCatalog("")
	require.NoError(t, err)
	const big = 200_000 // bytes; 60,000 tokens
	text := strings.Repeat("x", big)
	check := func(template berth.Template, texts map[string]string) error {
		for _, tier := range []berth.Tier{berth.TierPaid, berth.TierFree} {
			if err := c.CheckContext(c.Plan(template, tier, false), texts); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, check(berth.TemplateJobMatch, map[string]string{berth.VarResume: "Go", berth.VarJobText: text}))
	require.NoError(t, check(berth.TemplateJobMatch, nil))

	err = check(berth.TemplateJobMatch, map[string]string{
		berth.VarResume: text[:len(text)-10], berth.VarJobText: text[:len(text)-10], berth.VarDetailedResume: text, berth.VarNotes: "short",
	})
	require.Equal(t, berth.CodeTooLarge, berth.CodeOf(err))
	require.ErrorContains(t, err, "variables.detailedResume: too long for the model deepseek-reasoner")
	require.ErrorContains(t, err, "60000 of them here, and at most 94304 fit")

	// Chinese text has more tokens for each character.
	require.Error(t, check(berth.TemplateResumeSummary, map[string]string{berth.VarResume: strings.Repeat("字", 210_000)}))
	require.NoError(t, check(berth.TemplateResumeSummary, map[string]string{berth.VarResume: strings.Repeat("x", 210_000)}))
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
	texts := map[string]string{berth.VarResume: strings.Repeat("字", 1_000_000)}
	require.NoError(t, c.CheckContext(c.Plan(berth.TemplateResumeSummary, berth.TierPaid, false), texts))
	require.Error(t, c.CheckContext(c.Plan(berth.TemplateResumeSummary, berth.TierFree, false), texts))
}

// T4: the cost of a call is that of its prompt and of a usual answer.
func TestCost_LongerPrompt_CostsMore(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1.03, Cost([]Message{{Text: strings.Repeat("a", 100)}}), 0.001)
	require.InDelta(t, 4, Cost([]Message{{Text: strings.Repeat("a", 10_000)}}), 0.001)
	require.InDelta(t, 2, Cost([]Message{{ImageURL: "data:"}}), 0.001)
}
