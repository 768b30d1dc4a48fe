package bench

import (
	"bufio"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/placement"
	"berth/internal/testredis"
	"berth/lua"
)

// The baseline of a decision makes the same Redis calls, with arguments of the same size, and has as many arguments itself.
// Otherwise the ratio of their times says nothing.
func TestBareDecision_EachStrategy_MakesSameCalls(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{10, 100} { // the caller's host has nodes in the larger fleet only
		server := testredis.Start(t)
		rdb := server.Client()
		s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
		require.NoError(t, registerFleet(t.Context(), s, nodes, allPairs()))
		require.NoError(t, s.Load(t.Context()))
		placer, calls, lease := placement.New(s, unchanging{}), monitor(t, server, rdb), 0
		for _, strategy := range benchmarked() {
			bare, err := newBareDecision(t.Context(), rdb, s, strategy)
			require.NoError(t, err)
			for i := range 2 * nodes { // round-robin begins again
				lease++
				if i > 0 && strategy == berth.StrategyRoundRobin {
					require.NoError(t, rdb.Copy(t.Context(), s.Keys().PoolRotation(benchPool), s.Keys().PoolRotation(barePool), 0, true).Err())
				}
				calls()
				_, err := placer.Assign(t.Context(), decidedLease(lease), benchRequest(strategy))
				require.NoError(t, err)
				decided := calls()
				_, err = bare.run(t.Context(), rdb, lease)
				require.NoError(t, err)
				if i == 0 {
					continue // the first decision of round-robin has no last node
				}
				requireSameCalls(t, decided, calls())
			}
		}
	}
}

func requireSameCalls(t *testing.T, decided, bare [][]string) {
	t.Helper()
	require.Len(t, bare, len(decided), "%q\n%q", decided, bare)
	for i := range decided {
		require.Equal(t, decided[i][0], bare[i][0], "%q\n%q", decided, bare)
		require.Len(t, bare[i], len(decided[i]), "%q\n%q", decided[i], bare[i])
		for j, arg := range decided[i] {
			if strings.EqualFold(decided[i][0], "evalsha") {
				continue // the rank of the node is shorter than a random number
			}
			require.InDelta(t, len(arg), len(bare[i][j]), 4, "%q\n%q", decided[i], bare[i])
		}
	}
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// monitor returns a function that returns the commands which the server has run since its last call, with their arguments.
func monitor(t *testing.T, server *testredis.Server, rdb *redis.Client) func() [][]string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewReader(conn)
	_, err = lines.ReadString('\n') // OK
	require.NoError(t, err)
	return func() (calls [][]string) {
		const last = "end of the calls"
		require.NoError(t, rdb.Echo(t.Context(), last).Err())
		for {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			var call []string
			for _, q := range quoted.FindAllString(line, -1) {
				arg, err := strconv.Unquote(q)
				require.NoError(t, err)
				call = append(call, arg)
			}
			if slices.Contains(call, last) {
				return calls
			}
			calls = append(calls, call)
		}
	}
}
