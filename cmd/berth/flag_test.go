package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"berth"
)

func TestConferenceCreate_MalformedFlag_ErrorShowsAnExample(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) (conferenceCreate, error) {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse(append([]string{"conference", "create"}, args...))
		return cmd.Conference.Create, err
	}
	_, err := parse("--metadata", "{x")
	require.ErrorContains(t, err, `--metadata: must be JSON such as {"topic":"planning"}, got "{x"`)
	_, err = parse("--until", "yesterday")
	require.ErrorContains(t, err, `--until: must be a time such as 2006-01-02T15:04:05Z or 2006-01-02T15:04:05+01:00, got "yesterday"`)

	got, err := parse("--metadata", `{"topic": [1]}`, "--until", "2026-11-22T17:00:00+01:00")
	require.NoError(t, err)
	require.Equal(t, `{"topic": [1]}`, string(got.Metadata))
	require.True(t, got.Until.Equal(time.Date(2026, 11, 22, 16, 0, 0, 0, time.UTC)))
}

func TestCommands_InvalidArgument_ErrorStatesWhatIsAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want string
		args []string
	}{
		{`--from: must be a time such as 2006-01-02T15:04:05Z`, []string{"task", "list", "--from", "yesterday"}},
		{`--to: must be a time such as 2006-01-02T15:04:05Z`, []string{"task", "list", "--to", "x"}},
		{`<id>: must not be empty`, []string{"task", "get", ""}},
		{`<user>: must not be empty`, []string{"account", "credit", "", "5", "--reason", "r"}},
		{`<number>: must not be empty`, []string{"conference", "end", ""}},
		{`unknown flag -1: write -- before a negative number and after all flags, as in -- -5`, []string{"model", "cap", "m", "-1"}},
		{`unknown flag -2: write -- before a negative number`, []string{"account", "credit", "u", "-2", "--reason", "r"}},
		{`unknown flag --limti`, []string{"task", "list", "--limti"}},
	} {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse(c.args)
		err = explainFlag(err)
		require.ErrorContains(t, err, c.want)
		require.ErrorAs(t, err, new(*kong.ParseError), "so that the usage is shown")
	}
	require.NoError(t, explainFlag(nil))
	var cmd commands
	var help bytes.Buffer
	k, err := kong.New(&cmd, enums(), kong.Writers(&help, &help), kong.Exit(func(int) {}))
	require.NoError(t, err)
	_, err = k.Parse([]string{"account", "credit", "u", "--reason", "r", "--", "-2"})
	require.NoError(t, err)
	require.Equal(t, -2*berth.Credit, cmd.Account.Credit.Amount)
	_, _ = k.Parse([]string{"conference", "list", "--help"})
	require.Regexp(t, `status:\s+`+string(berth.ConferenceStatuses()[0])+`,`, help.String())
}

// O3: the expiry of a key is a time, a number of days, or never.
func TestExpiryFlag_Texts_ReadOrNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"never": {}, "2027-01-02T15:04:05Z": time.Date(2027, 1, 2, 15, 4, 5, 0, time.UTC), "30d": time.Now().AddDate(0, 0, 30),
	} {
		f := expiryFlag{timeFlag{time.Now()}}
		require.NoError(t, f.UnmarshalText([]byte(text)), text)
		require.WithinDuration(t, want, f.Time, time.Minute, text)
	}
	for text, want := range map[string]string{"0d": "1d", "-3d": "1d", "xd": "1d", "99999999d": "1d", "soon": "must be a time", "": "must be a time"} {
		require.ErrorContains(t, new(expiryFlag).UnmarshalText([]byte(text)), want, text)
	}
}
