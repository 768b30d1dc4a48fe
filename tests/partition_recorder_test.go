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

// claim identifies a unit's report: it claims to own a conference with an epoch, as one of the unit's generations.
type claim struct {
	e164, unit        string
	generation, epoch int64
}

// oneOwner returns an error for the first report that was accepted after one of a later owner, or with another unit's
// epoch. A unit that registered again continues with its epoch (C4).
func oneOwner(taken []claim) error {
	last := map[string]claim{}
	for i, c := range taken {
		before := last[c.e164]
		switch {
		case c.epoch < before.epoch, c.epoch == before.epoch && c.unit == before.unit && c.generation < before.generation:
			return fmt.Errorf("report %d: %+v was accepted after %+v", i, c, before)
		case c.epoch == before.epoch && c.unit != before.unit:
			return fmt.Errorf("report %d: %+v was accepted, and %+v with the same epoch", i, c, before)
		}
		last[c.e164] = c
	}
	return nil
}

// rowKeys and rowArgs are the numbers of KEYS and ARGV of put_conference.
const (
	rowKeys = 4
	rowArgs = 13
)

// recorder monitors Redis and records which reports were accepted and which rows were written, in the order of execution.
type recorder struct {
	conn  net.Conn
	done  chan struct{}
	taken []claim
	rows  [][]string // KEYS and ARGV of put_conference
	// count is the number of reports accepted so far, last the latest one.
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
	const keys = 3 // after evalsha, the hash and the number of keys
	switch {
	case len(args) == 0 || !strings.EqualFold(args[0], "evalsha") && !strings.EqualFold(args[0], "eval"):
		// The last write of put_conference_info when it has accepted a report.
		if n := len(r.taken); len(args) == 4 && strings.EqualFold(args[0], "hset") && args[2] == "size" && r.pending() {
			r.taken[n-1].e164 = strings.TrimSuffix(strings.TrimPrefix(args[1], lua.Keys{}.Conference("")), ":info")
			r.count.Add(1)
			last := r.taken[n-1]
			r.last.Store(&last)
		}
		return
	case r.pending(): // the previous report was not accepted
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

// stop ends the recording. Afterwards the fields may be read.
func (r *recorder) stop() {
	_ = r.conn.Close()
	<-r.done
	if r.pending() {
		r.taken = r.taken[:len(r.taken)-1]
	}
}

// unquoted returns the arguments of a command as MONITOR shows it.
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
func (p *partition) writeRow(script *redis.Script, row []string) string {
	p.tb.Helper()
	args := make([]any, 0, rowArgs)
	for _, a := range row[rowKeys:] {
		args = append(args, a)
	}
	code, err := script.Run(context.Background(), p.rdb, row[:rowKeys], args...).StringSlice()
	require.NoError(p.tb, err)
	return code[0]
}

// say sends a report to Redis with the given script, bypassing the API.
func (p *partition) say(script *redis.Script, c claim) {
	p.tb.Helper()
	k := lua.Keys{}
	_, err := script.Run(context.Background(), p.rdb, []string{k.Conference(c.e164), k.ConferenceInfo(c.e164), k.StaleInfo()},
		c.unit, c.generation, c.epoch, 1, 1000, "by", fmt.Sprintf("%q", fmt.Sprintf("%+v", c))).Slice()
	require.NoError(p.tb, err)
}

// altered returns a script without a text that it contains exactly once.
func (s *stack) altered(name, what string) *redis.Script {
	s.tb.Helper()
	source := lua.Sources()[name]
	require.Equal(s.tb, 1, strings.Count(source, what), "the text of %s has changed", name)
	return redis.NewScript(strings.Replace(source, what, "", 1))
}

// ofConference returns the claims of one conference.
func ofConference(e164 string, claims []claim) []claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c claim) bool { return c.e164 != e164 })
}
