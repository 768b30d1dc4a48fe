package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/client"
	"berth/internal/devserver"
	"berth/internal/identity"
)

// X1: the first conference works without a media server.
func TestDemoFleet_ConferenceIsCreated_RunsOnADemoUnit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := program(t, dir, "--only=redis,temporal,worker,api,fleet", "--database=sqlite:"+dir+"/berth.db")
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
	require.Equal(t, berth.ConferenceOpen, made.Status)
	require.Regexp(t, "^demo-unit-", made.Owner.NodeID)
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.NoError(t, server.Wait())
}
