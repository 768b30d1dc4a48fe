package api

import (
	"context"
	"maps"
	"slices"

	"berth"
	"berth/internal/fleet"
)

// listing is the sorted ids and the counts of one snapshot. The first list request computes it, and pages of the same snapshot
// share it.
type listing struct {
	of     *fleet.Snapshot
	nodes  []string // sorted
	pools  []string // sorted
	counts map[string]berth.PoolCounts
	living map[string]bool // capabilities of registered nodes
}

// listed returns the listing of the current snapshot.
func (s *server) listed() *listing {
	now := s.Fleet.Snapshot()
	if l := s.listing.Load(); l != nil && l.of == now {
		return l
	}
	l := &listing{of: now, nodes: slices.Sorted(maps.Keys(now.Nodes)), counts: map[string]berth.PoolCounts{}, living: map[string]bool{}}
	for id := range now.Pools {
		l.counts[id] = berth.PoolCounts{Excluded: map[berth.ExcludeReason]int{}}
	}
	for _, n := range now.Nodes {
		if n.State != berth.NodeDead {
			for _, c := range n.Capabilities {
				l.living[c] = true
			}
		}
		for _, id := range n.Pools {
			c := l.counts[id]
			if n.Excluded == "" {
				c.Free++
			} else {
				if c.Excluded == nil {
					c.Excluded = map[berth.ExcludeReason]int{}
				}
				c.Excluded[n.Excluded]++
			}
			l.counts[id] = c
		}
	}
	l.pools = slices.Sorted(maps.Keys(l.counts))
	s.listing.Store(l)
	return l
}

// page returns at most limit ids after the cursor for which keep is true, and the cursor of the next page.
func page(ids []string, cursor string, limit int, keep func(id string) bool) (out []string, next string) {
	from, exact := slices.BinarySearch(ids, cursor)
	if exact {
		from++
	}
	for _, id := range ids[from:] {
		if !keep(id) {
			continue
		}
		if len(out) == limit {
			return out, out[limit-1]
		}
		out = append(out, id)
	}
	return out, ""
}

// convert returns a list for a response, which is empty rather than null.
func convert[A, B any](all []A, view func(A) B) []B {
	out := make([]B, len(all))
	for i, a := range all {
		out[i] = view(a)
	}
	return out
}

// PageQuery selects a page of a list that is ordered by id.
type PageQuery struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	CursorParam
}

type nodesInput struct {
	PageQuery
	Kind  berth.NodeKind  `query:"kind"`
	State berth.NodeState `query:"state"`
	Pool  string          `query:"pool" maxLength:"512" doc:"Only members of this pool"`
}

// node returns none: the list has only the nodes that the caller may see.
func (in *nodesInput) node() (field, id string) { return "", "" }

type nodesOutputBody struct {
	Nodes      []berth.Node `json:"nodes"`
	NextCursor string       `json:"nextCursor,omitempty" doc:"Absent on the last page"`
	Stale      bool         `json:"stale" doc:"Redis is unavailable and this is the last known state; or Redis may have lost data, and nodes may be missing"`
}

type nodeView struct {
	berth.Node
	Stale bool `json:"stale" doc:"Redis is unavailable: this is the last known state of the node"`
}

func (s *server) nodeReadRoutes() {
	list := forFleet
	list.compress = true
	register(s, "GET /v1/nodes", list, s.listNodes, op("list-nodes", "nodes",
		"List the nodes by id, including those that died within the last hour",
		"A token of scope node gets the nodes that it is for, an operator's all."))
	register(s, "GET /v1/nodes/{id}", forFleet, s.getNode, op("get-node", "nodes", "Get a node"))
}

func (s *server) listNodes(ctx context.Context, in *nodesInput) (*nodesOutputBody, error) {
	l, user := s.listed(), callOf(ctx).user
	matches := func(n berth.Node) bool {
		return (in.Kind == "" || n.Kind == in.Kind) && (in.State == "" || n.State == in.State) && (in.Pool == "" || slices.Contains(n.Pools, in.Pool))
	}
	ids, next := page(l.nodes, in.Cursor, in.Limit, func(id string) bool {
		return (user.Operator() || user.ActsFor(id)) && matches(l.of.Nodes[id])
	})
	// The snapshot may lack what another process has just changed, such as a cordon.
	nodes, stale, err := latest(l.of, l.of.Nodes, func() (map[string]berth.Node, error) { return s.Scripts.ReadNodes(ctx, ids...) })
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { n, exists := nodes[id]; return !exists || !matches(n) })
	return &nodesOutputBody{
		Nodes:      convert(ids, func(id string) berth.Node { return shown(nodes[id]) }),
		NextCursor: next, Stale: stale || s.mayLackNodes(ctx),
	}, nil
}

// mayLackNodes reports whether Redis may have lost nodes that have not registered again yet.
func (s *server) mayLackNodes(ctx context.Context) bool {
	grace, err := s.Scripts.CheckGuard(ctx)
	return err != nil || grace.Left > 0
}

func (s *server) getNode(ctx context.Context, in *nodeInput) (*nodeView, error) {
	if err := berth.ValidID("nodeId", in.ID); err != nil {
		return nil, err
	}
	now := s.Fleet.Snapshot()
	nodes, stale, err := latest(now, now.Nodes, func() (map[string]berth.Node, error) { return s.Scripts.ReadNodes(ctx, in.ID) })
	if err != nil {
		return nil, err
	}
	n, ok := nodes[in.ID]
	switch {
	case ok:
		return &nodeView{Node: shown(n), Stale: stale}, nil
	case stale:
		return nil, unavailable("Redis", nil) // it may have registered since
	default:
		return nil, errNoNode
	}
}

// latest returns the value in Redis, which includes the latest changes, or the last known one while Redis is unavailable.
func latest[T any](now *fleet.Snapshot, seen T, read func() (T, error)) (value T, stale bool, err error) {
	if now.Stale {
		return seen, true, nil
	}
	value, err = read()
	if unreachable(err) {
		return seen, true, nil
	}
	return value, false, err
}

// shown returns the node with empty lists instead of null.
func shown(n berth.Node) berth.Node {
	n.Capabilities, n.Pools = slices.Concat([]string{}, n.Capabilities), slices.Concat([]string{}, n.Pools)
	return n
}
