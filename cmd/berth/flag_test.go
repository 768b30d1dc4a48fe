package main

import (
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
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
