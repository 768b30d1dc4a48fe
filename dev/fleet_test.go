package main

import (
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/devserver"
	"berth/internal/identity"
	"berth/internal/testlivekit"
)

// X1: the first conference works without a media server.
func TestDemoFleet_ConferenceIsCreated_RunsOnADemoUnit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := program(t, dir, "--only=redis,temporal,worker,api,fleet", "--database=sqlite:"+dir+"/berth.db", "--livekit-server=none")
	_, made := demoConference(t, dir)
	require.Equal(t, berth.ConferenceOpen, made.Status)
	require.Regexp(t, "^demo-unit-", made.Owner.NodeID)
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.NoError(t, server.Wait())
}

// X1, B9: with a LiveKit server, the demo's conferences can be joined, and they move when one is killed as the README states.
func TestDemoFleet_LiveKitServerKilled_ConferenceMovesAndCanBeJoined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	setting, ok := reflect.TypeFor[options]().FieldByName("LiveKit")
	require.True(t, ok)
	require.Equal(t, "bin/tools/livekit-server-"+testlivekit.Version, setting.Tag.Get("default"), "the version that scripts/livekit.sh builds")
	program(t, dir, "--only=redis,temporal,worker,api,fleet", "--database=sqlite:"+dir+"/berth.db", "--livekit-server="+testlivekit.Binary(t))
	c, made := demoConference(t, dir)
	kill := func(signal, unit string) error {
		return exec.CommandContext(t.Context(), "pkill", signal, "-f", dir+"/livekit/"+unit+".yaml").Run() //nolint:gosec // of this test
	}
	for range 2 { // a killed server starts again
		a, err := c.AddParticipant(t.Context(), made.E164, client.ParticipantSpec{Identity: "ann"})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(a.URL, "ws", "http", 1)+"/rtc/validate?access_token="+a.Token, http.NoBody)
			require.NoError(t, err)
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			return res.StatusCode == http.StatusOK
		}, 30*time.Second, 50*time.Millisecond)
		was := made.Owner.NodeID
		require.NoError(t, kill("-9", was))
		require.Eventually(t, func() bool {
			now, err := c.Conference(t.Context(), made.E164, "")
			made = now.Conference
			return err == nil && made.Owner.NodeID != "" && made.Owner.NodeID != was
		}, 30*time.Second, 50*time.Millisecond)
		require.Eventually(t, func() bool { return kill("-0", was) == nil }, 30*time.Second, 50*time.Millisecond, "it starts again")
	}
}

// demoConference creates a conference of alice on a development server.
func demoConference(t *testing.T, dir string) (*client.Client, client.Conference) {
	t.Helper()
	r := awaitReadyFile(t, dir)
	secret, err := os.ReadFile(devserver.SecretFile(dir))
	require.NoError(t, err)
	token, err := identity.Issue(strings.TrimSpace(string(secret)), identity.Grant{
		UserID: "alice", Scopes: []string{identity.ScopeUser}, TTL: time.Hour,
	})
	require.NoError(t, err)
	c := client.New("http://"+r.HTTPAddr, token)
	var made client.Conference
	require.Eventually(t, func() bool {
		made, err = c.CreateConference(t.Context(), client.ConferenceSpec{E164: "8613800138000", DurationMs: 600_000})
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "no unit accepts it")
	return c, made
}
