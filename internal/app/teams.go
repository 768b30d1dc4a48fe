package app

import (
	"context"

	"berth/internal/ledger"
	"berth/internal/sampler"
	"berth/lua"
)

// teamUses returns what the first teams by id use that operators have defined. Tokens may name any number of others.
func teamUses(
	ctx context.Context, l *ledger.Ledger, scripts *lua.Scripts, models []string, limits func(model string) lua.ModelLimits,
) (map[string]sampler.TeamUse, error) {
	teams, _, err := l.Teams(ctx, ledger.LevelQuery{Defined: true}, "", sampler.MaxTeams)
	if err != nil || len(teams) == 0 {
		return nil, err
	}
	uses, levels := map[string]sampler.TeamUse{}, []lua.Level{}
	for _, t := range teams {
		uses[t.ID] = sampler.TeamUse{}
		levels = append(levels, lua.Level{Team: t.ID})
	}
	for _, m := range models {
		found, err := scripts.ReadLevels(ctx, m, limits(m), levels)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			u := uses[f.Level.Team]
			uses[f.Level.Team] = sampler.TeamUse{InUse: u.InUse + f.InUse, Waiting: u.Waiting + f.Waiting}
		}
	}
	return uses, nil
}
