package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testnames"
)

func TestIsolated_NamesOfTheWorld_OnlyThoseFromTheRightOnTerminals(t *testing.T) {
	t.Parallel()
	for _, n := range testnames.All() {
		require.Equal(t, n.Stored(), isolated(n.Stored(), false), n.Language)
	}
	for name, shown := range map[string]string{
		"שרה (CTO)": "\u2068שרה (CTO)\u2069", "محمد": "\u2068محمد\u2069", "𞤀𞤤𞤫": "\u2068𞤀𞤤𞤫\u2069", "Room ١٢": "\u2068Room ١٢\u2069", "a\u200fb": "\u2068a\u200fb\u2069",
		"田中": "田中", "Zoë": "Zoë", "👍🏽": "👍🏽", "": "",
	} {
		require.Equal(t, shown, isolated(name, true))
	}
}
