//go:build faults

package tests

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// assembly is many conferences of four participants, of whom the first publishes.
type assembly struct {
	*participants
	listeners []string
}

const assemblyEach = 4

// assembly connects the participants of n conferences, with what admit returns for each.
func (s *stack) assembly(n int, admit func(e164, name string) (url, token string)) *assembly {
	s.tb.Helper()
	c := &assembly{participants: s.participants()}
	for i := range n {
		number := assemblyNumber(i)
		for each := range assemblyEach {
			name := fmt.Sprintf("%s-%d", number, each)
			url, token := admit(number, name)
			c.join(name, url, token, each == 0)
			if each > 0 {
				c.listeners = append(c.listeners, name)
			}
		}
		if i%5 == 4 { // at most 20 connections are being made
			for _, name := range c.listeners {
				c.await(name, "received", 1)
			}
		}
	}
	return c
}

func assemblyNumber(i int) string { return strconv.Itoa(8638000001 + i) }

// silences returns for how long each listener received nothing at the first change, once all receive again.
func (c *assembly) silences() (all []int64) {
	c.s.tb.Helper()
	for _, name := range c.listeners {
		all = append(all, c.silence(name, 1, 0))
	}
	slices.Sort(all)
	return all
}

// processorTime returns what a process has used.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0 // it has ended
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// B9: the server of 50 conferences with four participants each is killed. All listeners receive audio on the other one; this prints
// after how long, and the processor time that it took.
func TestParticipants_ServerOfManyConferencesKilled_AllFollow(t *testing.T) {
	const conferences = 50
	s := newStack(t, withParticipants())
	m := s.conferences()
	lost := s.mediaUnit("u1", conferences)
	for i := range conferences {
		m.open(assemblyNumber(i))
	}
	other := s.mediaUnit("u2", conferences)
	c := s.assembly(conferences, func(e164, name string) (string, string) {
		a := m.admit(e164, name)
		return a.URL, a.Token
	})
	before := len(c.all("silence"))
	pids := map[string]int{
		"Temporal and Redis": s.infra.cmd.Process.Pid, "API": s.api.cmd.Process.Pid, "worker": s.worker.cmd.Process.Pid,
		"agent": other.agent.cmd.Process.Pid, "LiveKit": other.PID(), "participants": c.pid,
	}
	used := map[string]time.Duration{}
	for name, pid := range pids {
		used[name] = processorTime(t, pid)
	}
	load, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	lost.Kill()
	killed := time.Now()
	all := c.silences()
	took := time.Since(killed)
	for name, pid := range pids {
		t.Logf("%s used %s of processor time in %s", name, processorTime(t, pid)-used[name], took.Round(time.Millisecond))
	}
	t.Logf("kill -9 with %d conferences of %d: silence p50 %d ms, p99 %d ms, max %d ms, of %d listeners; %d pauses before; load before %s",
		conferences, assemblyEach, all[len(all)/2], all[len(all)*99/100], all[len(all)-1], len(all), before, load)
	require.Empty(t, c.all("disconnected"))
	require.Empty(t, c.all("refused"))
	for i := range conferences {
		s.eventually("all to be on the other unit", func() bool { return other.present(assemblyNumber(i)) == assemblyEach })
	}
}

// direct returns how a participant connects to a LiveKit server without berth.
func (u *mediaUnit) direct(e164, name string) (url, token string) {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": u.key, "sub": name, "exp": time.Now().Add(time.Hour).Unix(),
		"video": map[string]any{"room": e164, "roomJoin": true, "canPublish": true, "canSubscribe": true},
	}).SignedString([]byte(u.secret))
	require.NoError(u.s.tb, err)
	return u.url("ws"), token
}

// The same participants without berth, as a baseline: those of a killed server receive nothing until it is started again, although
// another server runs, and so do those of a server that is stopped.
func TestParticipants_WithoutBerth_StaySilent(t *testing.T) {
	const conferences = 10
	s := prepareStack(t, t.TempDir(), withParticipants())
	defer s.model.Close()
	lost := s.mediaServer("u1", true)
	s.mediaServer("u2", true)
	c := s.assembly(conferences, lost.direct)
	lost.Kill()
	const bound = 30 * time.Second
	pause(t.Context(), time.Second) // for what was on its way
	before := len(c.all("silence"))
	pause(t.Context(), bound)
	require.Len(t, c.all("silence"), before, "no listener has received anything")
	t.Logf("kill -9 without berth: %d of %d listeners receive nothing after %s", len(c.listeners), len(c.listeners), bound)

	lost.boot()
	again := time.Now()
	all := c.silences()
	t.Logf("the same server was started again after %s, and creates the rooms itself: silence p50 %d ms, max %d ms; audio %s after the start",
		bound, all[len(all)/2], all[len(all)-1], time.Since(again).Round(time.Millisecond))

	for range 2 { // the first waits for its participants to leave
		require.NoError(t, syscall.Kill(lost.PID(), syscall.SIGTERM))
		pause(t.Context(), time.Second)
	}
	stopped := time.Now().UnixMilli()
	pause(t.Context(), bound)
	for _, e := range c.all("silence") {
		require.Less(t, e.At, stopped+2000, "no listener has received anything")
	}
	t.Logf("a planned stop without berth: %d of %d participants were disconnected after %s, and no listener receives anything",
		len(c.all("disconnected")), conferences*assemblyEach, bound)
}
