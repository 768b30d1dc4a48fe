package api

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/internal/fleet"
)

// listing is the order and the sums of one snapshot, made when a list first needs them: pages of the same snapshot share
// them, and nothing is sorted for who does not ask.
type listing struct {
	of     *fleet.Snapshot
	nodes  []string // sorted
	pools  []string // sorted
	counts map[string]berth.PoolCounts
	living map[string]bool // capabilities that a living node has
}

// listed is the fleet as it was last read, with its listing.
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

// page is the ids behind the cursor that keep wants, at most limit, and the cursor of the next page.
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

// PageQuery is the page of a list of the fleet, ordered by id.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"512" doc:"nextCursor of the page before"`
}

type nodesInput struct {
	PageQuery
	Kind  berth.NodeKind  `query:"kind"`
	State berth.NodeState `query:"state"`
	Pool  string          `query:"pool" maxLength:"512" doc:"Only its members"`
}

type nodesOutput struct {
	Body struct {
		Nodes      []berth.Node `json:"nodes"`
		NextCursor string       `json:"nextCursor,omitempty" doc:"Absent on the last page"`
		Stale      bool         `json:"stale" doc:"Redis is away, and this is the fleet as it was last seen; or Redis may have lost data, and nodes may be missing"`
	}
}

type nodeOutput struct{ Body nodeView }

type nodeView struct {
	berth.Node
	Stale bool `json:"stale" doc:"Redis is away: this is the node as it was last seen"`
}

func (s *server) nodeReadRoutes() {
	register(s, huma.Operation{
		OperationID: "list-nodes", Method: http.MethodGet, Path: "/v1/nodes", Tags: []string{"nodes"},
		Summary: "The nodes by id, those included that died within the last hour",
	}, forFleet, s.listNodes)
	register(s, huma.Operation{
		OperationID: "get-node", Method: http.MethodGet, Path: "/v1/nodes/{id}", Tags: []string{"nodes"}, Summary: "A node",
	}, forFleet, s.getNode)
}

func (s *server) listNodes(ctx context.Context, in *nodesInput) (*nodesOutput, error) {
	l := s.listed()
	ids, next := page(l.nodes, in.Cursor, in.Limit, func(id string) bool {
		n := l.of.Nodes[id]
		return (in.Kind == "" || n.Kind == in.Kind) && (in.State == "" || n.State == in.State) &&
			(in.Pool == "" || slices.Contains(n.Pools, in.Pool))
	})
	out := &nodesOutput{}
	out.Body.Nodes, out.Body.NextCursor, out.Body.Stale = make([]berth.Node, 0, len(ids)), next, l.of.Stale || s.forgetful(ctx)
	for _, id := range ids {
		out.Body.Nodes = append(out.Body.Nodes, shown(l.of.Nodes[id]))
	}
	return out, nil
}

// forgetful tells that Redis may have lost nodes that are at work and have not registered again yet (L12).
func (s *server) forgetful(ctx context.Context) bool {
	grace, err := s.Scripts.CheckGuard(ctx)
	return err != nil || grace.Left > 0
}

func (s *server) getNode(ctx context.Context, in *nodeInput) (*nodeOutput, error) {
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
		return &nodeOutput{Body: nodeView{Node: shown(n), Stale: stale}}, nil
	case stale:
		return nil, unavailable("Redis", nil) // it may have come meanwhile
	default:
		return nil, errNoNode
	}
}

// latest is what Redis has now, so that a change just made shows; while it is away, what was last seen (L11).
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

// shown is the node with empty lists in the place of none.
func shown(n berth.Node) berth.Node {
	n.Capabilities, n.Pools = slices.Concat([]string{}, n.Capabilities), slices.Concat([]string{}, n.Pools)
	return n
}
