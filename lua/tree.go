package lua

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The kinds of levels of the order.
const (
	KindQueue   = "queue"
	KindTeam    = "team"
	KindApp     = "app"
	KindUser    = "user"
	KindKey     = "key"
	KindEndUser = "endUser"
)

// Tree is what holds slots of a model and what waits for one, on each level of the order.
type Tree struct {
	// Grace is for how long nothing is granted because Redis may have lost leases; negative where that begins with the next call.
	Grace time.Duration
	// Starting is the number of tasks whose workflows have been signalled, and whose calls do not wait for a slot yet.
	Starting int
	// Full are the upstreams whose provider has no free slot.
	Full  []string
	Nodes []TreeNode // parents before their children, of each those with the most waiting leases first
}

// TreeNode is one level of the order.
type TreeNode struct {
	Parent      int // index in Nodes, -1 for a queue
	Kind, ID    string
	Weight      float64
	Limit, Used int // maximum number of slots of all models together, 0 for none, and how many of these are in use
	InUse       int // slots of the model
	Waiting     int
	// Ahead is the number of neighbours that are served before it, negative without waiting leases and while it is at its limit.
	Ahead int
	Needs Needs // of the first waiting lease of a user or end user
}

// MaxTreeChildren is how many children of a level ReadTree reads at most.
const MaxTreeChildren = 100

// ReadTree reads the order of a model, with a maximum number of children of each level: those of one team or application unless it is the
// zero Level. limits apply where operators have set none. The time does not depend on the number of waiting leases, but on that of the slots in use.
func (s *Scripts) ReadTree(ctx context.Context, model string, limits ModelLimits, children int, of Level) (t Tree, err error) {
	path := ""
	if of != (Level{}) {
		path = of.path()
	}
	r := s.call(ctx, "read_tree", []string{s.keys.Guard()}, s.keys.prefix(), model, limits.arg(), children, path)
	r.code(GuardOK)
	t = Tree{Grace: r.duration(), Starting: int(r.number()), Full: r.texts()}
	r.list(func() {
		r.list(func() {
			n := TreeNode{Parent: int(r.number()) - 1}
			name := r.text()
			n.Kind, n.ID = KindQueue, name
			if n.Parent >= 0 {
				kind, escaped, _ := strings.Cut(name, ":")
				id, err := url.PathUnescape(escaped) // of berth.EscapeID
				if n.Kind = map[string]string{"team": KindTeam, "app": KindApp, "user": KindUser, "key": KindKey, "end": KindEndUser}[kind]; err != nil || n.Kind == "" {
					r.fail()
				}
				n.ID = id
			}
			n.Weight = float(r.text())
			n.Limit, n.Used, n.InUse, n.Waiting, n.Ahead = int(r.number()), int(r.number()), int(r.number()), int(r.number()), int(r.number())
			n.Needs = parseNeeds(r.text())
			if n.Parent >= len(t.Nodes) {
				r.fail()
			}
			t.Nodes = append(t.Nodes, n)
		})
	})
	return t, r.done()
}

// parseNeeds is the opposite of Needs.String; what is unreadable is no need.
func parseNeeds(s string) Needs {
	parts := strings.Split(s, ";")
	if len(parts) != 3 {
		return Needs{}
	}
	n := Needs{Conversation: parts[1]}
	n.Tokens, _ = strconv.Atoi(parts[0])
	if parts[2] != "" {
		n.Excluded = strings.Split(parts[2], ",")
	}
	return n
}
