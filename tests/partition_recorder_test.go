package tests

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/lua"
)

// claim is what a unit takes itself for: a conference's owner under an epoch, as one of the unit's generations.
type claim struct {
	e164, unit        string
	generation, epoch int64
}

// oneOwner returns an error for the first report that was accepted after one of a later owner, or with another unit's epoch. A unit
// that registered again continues with its epoch (C4).
func oneOwner(taken []claim) error {
	last := map[string]claim{}
	for i, c := range taken {
		was := last[c.e164]
		switch {
		case c.epoch < was.epoch, c.epoch == was.epoch && c.unit == was.unit && c.generation < was.generation:
			return fmt.Errorf("report %d: %+v was taken after %+v", i, c, was)
		case c.epoch == was.epoch && c.unit != was.unit:
			return fmt.Errorf("report %d: %+v was taken, and %+v under the same epoch", i, c, was)
		}
		last[c.e164] = c
	}
	return nil
}

// rowKeys and rowArgs are how many KEYS and ARGV put_conference has.
const (
	rowKeys = 4
	rowArgs = 12
)

// recorder monitors Redis itself: which reports were accepted and which rows were written, in the order of execution.
type recorder struct {
	conn  net.Conn
	done  chan struct{}
	taken []claim
	rows  [][]string // KEYS and ARGV of put_conference
	// count is how many were taken so far, last the last one.
	count atomic.Int64
	last  atomic.Pointer[claim]
}

func (s *stack) record() *recorder {
	s.tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", s.ready.RedisAddr)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { _ = conn.Close() })
	r := &recorder{conn: conn, done: make(chan struct{})}
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(s.tb, err)
	in := bufio.NewReaderSize(conn, 1<<20)
	ok, err := in.ReadString('\n')
	require.NoError(s.tb, err)
	require.Equal(s.tb, "+OK\r\n", ok)
	go func() {
		defer close(r.done)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			r.note(line)
		}
	}()
	return r
}

// note processes one line of the monitor: the call of a script is followed by its commands.
func (r *recorder) note(line string) {
	_, rest, _ := strings.Cut(line, "] ")
	args := unquoted(rest)
	const keys = 3 // of evalsha, its hash and their number
	switch {
	case len(args) == 0 || !strings.EqualFold(args[0], "evalsha") && !strings.EqualFold(args[0], "eval"):
		// What put_conference_info writes last when it has taken a report.
		if n := len(r.taken); len(args) == 4 && strings.EqualFold(args[0], "hset") && args[2] == "size" && r.pending() {
			r.taken[n-1].e164 = strings.TrimSuffix(strings.TrimPrefix(args[1], lua.Keys{}.Conference("")), ":info")
			r.count.Add(1)
			last := r.taken[n-1]
			r.last.Store(&last)
		}
		return
	case r.pending(): // the one before was not taken
		r.taken = r.taken[:len(r.taken)-1]
	}
	switch {
	case len(args) > keys+6 && args[2] == "3" && args[keys+2] == (lua.Keys{}).StaleInfo():
		generation, _ := strconv.ParseInt(args[keys+4], 10, 64)
		epoch, _ := strconv.ParseInt(args[keys+5], 10, 64)
		r.taken = append(r.taken, claim{unit: args[keys+3], generation: generation, epoch: epoch})
	case len(args) == keys+rowKeys+rowArgs && args[2] == strconv.Itoa(rowKeys) && args[keys+1] == args[keys]+":info":
		r.rows = append(r.rows, args[keys:])
	}
}

// pending reports whether the last report has not been accepted yet.
func (r *recorder) pending() bool { return len(r.taken) > 0 && r.taken[len(r.taken)-1].e164 == "" }

// stop ends the recording: what it holds may be read.
func (r *recorder) stop() {
	_ = r.conn.Close()
	<-r.done
	if r.pending() {
		r.taken = r.taken[:len(r.taken)-1]
	}
}

// unquoted are the arguments of a command as MONITOR shows it.
func unquoted(line string) (out []string) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return out
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return out
		}
		out, line = append(out, word), line[len(quoted):]
	}
	return out
}

// writeRow writes a recorded row again, like a network that delivers it late.
func (s *stack) writeRow(script *redis.Script, row []string) string {
	s.tb.Helper()
	args := make([]any, 0, rowArgs)
	for _, a := range row[rowKeys:] {
		args = append(args, a)
	}
	code, err := script.Run(context.Background(), s.redis(), row[:rowKeys], args...).StringSlice()
	require.NoError(s.tb, err)
	return code[0]
}

// say brings a report past the API, with a script of one's own.
func (s *stack) say(script *redis.Script, c claim) {
	s.tb.Helper()
	k := lua.Keys{}
	_, err := script.Run(context.Background(), s.redis(), []string{k.Conference(c.e164), k.ConferenceInfo(c.e164), k.StaleInfo()},
		c.unit, c.generation, c.epoch, 1, 1000, "by", fmt.Sprintf("%q", fmt.Sprintf("%+v", c))).Slice()
	require.NoError(s.tb, err)
}

// altered is a script with something taken out that is there once.
func (s *stack) altered(name, what string) *redis.Script {
	s.tb.Helper()
	source := lua.Sources()[name]
	require.Equal(s.tb, 1, strings.Count(source, what), "%s has another text now", name)
	return redis.NewScript(strings.Replace(source, what, "", 1))
}

// ofConference are the claims of one conference.
func ofConference(e164 string, claims []claim) []claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c claim) bool { return c.e164 != e164 })
}
