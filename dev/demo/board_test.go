package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// good returns figures of which all lines are true.
func good() figures {
	f := figures{
		wanted: 100, planned: 100, complete: 100, made: 110, bought: 104, refused: map[outcome]int{noCredit: 2, paused: 4}, lost: 3, broken: 2,
		peaks: map[string]int{"acme": 3, "zeta": 3, "nova": 2}, calm: 10 * time.Millisecond, flood: 200 * time.Millisecond,
		admitted: budgetRoom, tokens: tokens{1000, 4000}, unsettled: tokens{20, 80}, settled: true,
		charged: charged{input: 990, output: 3960},
	}
	f.charged.credits = price(990, 3960)
	f.charged.used = f.charged.credits
	return f
}

func TestScoreboard_LineIsFalse_OnlyItIsMarked(t *testing.T) {
	t.Parallel()
	for _, l := range lines(good(), nil) {
		require.False(t, l.wrong, l.name)
	}
	for line, change := range map[string]func(*figures){
		"calls wanted":                    func(f *figures) { f.wanted = 99 },
		"complete answers":                func(f *figures) { f.complete = 99 },
		"requests made":                   func(f *figures) { f.made++ },
		"calls above a cap":               func(f *figures) { f.refused[overCap] = 1 },
		"answers bought":                  func(f *figures) { f.bought, f.made = 106, 112 },
		"at acme":                         func(f *figures) { f.peaks["acme"] = 4 },
		"at zeta":                         func(f *figures) { f.peaks["zeta"] = 4 },
		"at nova":                         func(f *figures) { f.peaks["nova"] = 4 },
		"account without credit":          func(f *figures) { f.refused[noCredit], f.made = 4, 112 },
		"before its Retry-After":          func(f *figures) { f.early = 1 },
		"flood of the other team":         func(f *figures) { f.flood = f.calm + answerTime + 1 },
		"admitted":                        func(f *figures) { f.admitted = budgetRoom + 1 },
		"ledger":                          func(f *figures) { f.tokens.input = 1100 },
		"credits charged":                 func(f *figures) { f.charged.credits++; f.charged.used++ },
		"credits used of the teams' budg": func(f *figures) { f.charged.used++ },
	} {
		f := good()
		change(&f)
		var marked []string
		for row := range strings.Lines(render(lines(f, nil), false)) {
			if strings.HasPrefix(row, "FALSE") {
				marked = append(marked, row)
			}
		}
		require.Len(t, marked, 1, line)
		require.Contains(t, marked[0], line)
	}
}
