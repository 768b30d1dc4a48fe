package lua

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis returns the client of the scripts, so that tests can prepare and read data.
func (s *Scripts) Redis() redis.UniversalClient { return s.rdb }

// Learn makes s know the epoch that other has seen, as if both were one process whose connection has moved.
func (s *Scripts) Learn(other *Scripts) { s.learn(other.epoch.Load()) }

// Replace replaces texts in all scripts, old and new alternating, for tests that have to notice a broken variant.
func (s *Scripts) Replace(oldnew ...string) {
	r := strings.NewReplacer(oldnew...)
	for name, src := range Sources() {
		s.byID[name] = script{redis.NewScript(r.Replace(src)), observe(name)}
	}
}

// NodeMarks is the sorted set of the nodes with unavailable services, scored by when the first of them is available again.
func (k Keys) NodeMarks() string { return k.stem() + "node:marks" }

// ClassNodes is the set of all nodes of a class.
func (k Keys) ClassNodes(class string) string { return k.classNodes(class) }

// NodeDue is the sorted set of full nodes, scored by when one of their leases may have expired.
func (k Keys) NodeDue() string { return k.stem() + "node:due" }

// Matches is matches, for tests.
func (k Keys) Matches(pattern, key string) bool { return k.matches(pattern, key) }
