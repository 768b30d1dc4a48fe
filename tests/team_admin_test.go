package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// O3: an administrator of a team manages its keys and their budgets in the terminal, with the token that the command of the docs prints.
func TestCLI_TeamAdministrator_ManagesKeysOfTheTeam(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	operator := s.operator()
	for _, team := range []string{"search", "ads"} {
		_, err := operator.PutTeam(t.Context(), client.Team{TeamID: team})
		require.NoError(t, err)
	}
	other, err := operator.CreateKey(t.Context(), client.Key{TeamID: "ads", KeySpec: client.KeySpec{Title: "theirs"}})
	require.NoError(t, err)
	_, err = operator.PutBudget(t.Context(), berth.BudgetTeam, "search", client.BudgetSpec{Credits: 100 * berth.Credit, Period: berth.PeriodMonth})
	require.NoError(t, err)
	token := strings.TrimSpace(s.runCLI(true, "token", "--user", "mia", "--scopes", "team", "--team", "search", "--auth-secret", secret))
	run := func(succeeds bool, command string) string {
		t.Helper()
		return s.runCLI(succeeds, append(strings.Fields(command), "--token", token)...)
	}

	key := strings.TrimSpace(run(true, "key create --title Nightly --quiet"))
	require.Equal(t, http.StatusOK, s.modelsWith(t, key))
	require.Contains(t, run(false, "key create --team ads"), "teamId: you manage the team search only")
	list := run(true, "key list")
	require.Contains(t, list, "Nightly")
	require.NotContains(t, list, "theirs")
	id := strings.Fields(strings.Split(list, "\n")[1])[0]

	var changed client.Key
	require.NoError(t, json.Unmarshal([]byte(run(true, "key set "+id+" --rpm 5")), &changed))
	require.Equal(t, 5, changed.RPM)
	require.Equal(t, "Nightly", changed.Title)
	require.Contains(t, run(false, "key show "+other.KeyID), "API key not found")
	require.Contains(t, run(false, "key revoke "+other.KeyID), "API key not found")

	run(true, "budget set --key "+id+" --credits 3 --period day")
	require.Regexp(t, `(?m)^key +`+id+` +Nightly +3 .*\nteam +search +100 `, run(true, "budget list"))
	require.Contains(t, run(true, "budget show --team search"), "100")
	require.Contains(t, run(false, "budget set --team search --credits 1000"), "only operators change the budget of a team")
	require.Contains(t, run(false, "budget set --key "+other.KeyID+" --credits 1"), "API key not found")
	run(true, "budget delete --key "+id)

	run(true, "key revoke "+id)
	s.eventually("the key to be refused", func() bool { return s.modelsWith(t, key) == http.StatusUnauthorized })
	require.Equal(t, http.StatusOK, s.modelsWith(t, other.Secret))
}
