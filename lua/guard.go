package lua

import (
	"context"
	"strings"
	"time"
)

// GuardGrace is the code of check_guard, and of the scripts that take slots, while nothing is granted because Redis may have
// lost leases.
const GuardGrace = "GRACE"

// Grace is a time for which a Redis that may have lost leases grants nothing.
type Grace struct {
	// Until is its end by Redis's clock unless it is extended, which identifies it; zero when there never was one.
	Until time.Time
	// Left is how long it still lasts; negative: the time since its end.
	Left time.Duration
}

// CheckGuard determines whether this Redis is the one that has every lease, and opens a grace of NodeGrace when it may not
// be. It returns the last grace, whether or not it has ended. The scripts that take slots check the same themselves. Every
// process has to call it more often than NodeGrace, so that it knows of each grace before a slot is taken after it: a master
// that was replaced without noticing does not know.
func (s *Scripts) CheckGuard(ctx context.Context) (Grace, error) {
	r := s.call(ctx, "check_guard", []string{s.keys.Guard()}, millis(NodeGrace), s.epoch.Load())
	r.code(GuardGrace, GuardOK)
	g := Grace{Left: r.duration(), Until: msTime(r.text())}
	s.learn(r.wide())
	return g, r.done()
}

// ExtendGrace lets the grace that is identified by until last for at least that long from now on nodes, but not longer than
// MaxNodeGrace. It returns false when that grace has ended. Model slots are granted after the unextended grace, because their
// leases are renewed all the time.
func (s *Scripts) ExtendGrace(ctx context.Context, until time.Time, by time.Duration) (bool, error) {
	r := s.call(ctx, "extend_grace", []string{s.keys.Guard()}, until.UnixMilli(), millis(by), millis(MaxNodeGrace-NodeGrace))
	return r.code(GuardGrace, GuardOK) == GuardGrace, r.done()
}

// learn raises the epoch that this process passes to the scripts. A Redis with an older one has lost data.
func (s *Scripts) learn(epoch int64) {
	for last := s.epoch.Load(); epoch > last && !s.epoch.CompareAndSwap(last, epoch); last = s.epoch.Load() {
	}
}

// UnknownFormat reports whether a script has failed because the keys have a format that this version does not know.
func UnknownFormat(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the keys of this Redis have format ")
}

// Server is the Redis that has the keys of this cell: in a Cluster, the master of its slot.
type Server struct {
	// ID is the id by which scripts recognise it; it changes when Redis starts and when another server becomes the master.
	ID string
	// Now is its clock.
	Now time.Time
}

// CheckServer returns an error unless this Redis can be worked with: it accepts writes, it is not a replica, and this user may run scripts
// on all keys and publish. It returns what ReadServer does.
func (s *Scripts) CheckServer(ctx context.Context) (Server, error) {
	r := s.call(ctx, "check_server", append([]string{s.keys.Guard(), s.keys.Written()}, s.keys.kinds()...), s.keys.Tick("health"))
	r.code(GuardOK)
	return Server{ID: r.text(), Now: msTime(r.text())}, r.done()
}

// ReadServer returns the server of this cell as scripts see it. It fails where scripts cannot run or cannot read the
// server's id, and where the keys have a format that this version does not know: then no slot is granted either.
func (s *Scripts) ReadServer(ctx context.Context) (Server, error) {
	r := s.call(ctx, "read_server", []string{s.keys.Guard()})
	r.code(GuardOK)
	return Server{ID: r.text(), Now: msTime(r.text())}, r.done()
}
