package berth_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
)

func TestCredits_Texts_ReadExactly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]berth.Credits{
		"0": 0, "-0": 0, "0.000": 0, "1": 1000, "+1": 1000, "-5": -5000, "0.001": 1, "-0.001": -1, "1.25": 1250, "1.2500000": 1250,
		"1e3": 1_000_000, "1E-3": 1, "12.5e1": 125_000, "1000e-6": 1, "0e30": 0, "1000000000000": berth.MaxCredits,
	} {
		got, err := berth.ParseCredits(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", ".", "-", "1.", "0.0001", "1e-4", "1000000000000.001", "1e30", "1e999999999", "1e-999999999", "NaN", "0x1", "1_0", "1,5", " 1", "null", `"1"`,
		"1.2.3", "--1", "1e", strings.Repeat("9", 100),
	} {
		_, err := berth.ParseCredits(text)
		require.Error(t, err, text)
	}
}

func TestCredits_AnyAmount_SameAfterJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := berth.Credits(rapid.Int64Range(-int64(berth.MaxCredits), int64(berth.MaxCredits)).Draw(t, "credits"))
		b, err := json.Marshal(c)
		require.NoError(t, err)
		var read berth.Credits
		require.NoError(t, json.Unmarshal(b, &read))
		require.Equal(t, c, read)
		var number float64 // as other clients read it
		require.NoError(t, json.Unmarshal(b, &number))
		again, err := json.Marshal(number)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(again, &read))
		require.Equal(t, c, read, "%s", again)
	})
}
