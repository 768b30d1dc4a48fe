package lua

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
)

// NodeIDs returns the ids of the registered nodes, including suspects and nodes that died within the last hour, sorted.
func (s *Scripts) NodeIDs(ctx context.Context) ([]string, error) {
	keys := []string{s.keys.NodesDead()}
	for _, kind := range berth.NodeKinds() {
		keys = append(keys, s.keys.NodeBeats(string(kind)), s.keys.NodeSuspects(string(kind)))
	}
	cmds := make([]*redis.StringSliceCmd, len(keys))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			cmds[i] = p.ZRange(ctx, k, 0, -1)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var ids []string
	for _, c := range cmds {
		ids = append(ids, c.Val()...)
	}
	return unique(ids), nil
}

// readBatch is how many nodes one pipeline reads. Redis runs a pipeline as a whole: one of five hundred nodes delays all
// other commands, such as heartbeats, by ten milliseconds.
const readBatch = 32

// ReadNodes returns nodes by id, read in batches; the result omits those that do not exist.
func (s *Scripts) ReadNodes(ctx context.Context, ids ...string) (map[string]berth.Node, error) {
	out := make(map[string]berth.Node, len(ids))
	var marked []string
	classes := map[string][]string{} // nodes by class
	for batch := range slices.Chunk(ids, readBatch) {
		rows := make([]*redis.MapStringStringCmd, len(batch))
		cordons := make([]*redis.MapStringStringCmd, len(batch))
		leases := make([]*redis.IntCmd, len(batch))
		var briefs *redis.SliceCmd
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			briefs = p.HMGet(ctx, s.keys.NodeBriefs(), batch...)
			for i, id := range batch {
				rows[i] = p.HGetAll(ctx, s.keys.Node(id))
				cordons[i] = p.HGetAll(ctx, s.keys.NodeCordon(id))
				leases[i] = p.ZCard(ctx, s.keys.NodeSlots(id))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read nodes: %w", err)
		}
		for i, id := range batch {
			if f := rows[i].Val(); f["generation"] != "" {
				row, _ := briefs.Val()[i].(string)
				excluded, class := brief(row)
				out[id] = nodeOf(id, f, cordons[i].Val(), excluded, int(leases[i].Val()))
				if class != "" {
					classes[class] = append(classes[class], id)
				}
				if number(f["unavailable_until"]) > 0 {
					marked = append(marked, id)
				}
			}
		}
	}
	if err := s.readPools(ctx, out, classes); err != nil {
		return nil, err
	}
	return out, s.readUnavailable(ctx, out, marked)
}

// readPools reads the pools of the given classes, and sets those of their nodes.
func (s *Scripts) readPools(ctx context.Context, nodes map[string]berth.Node, classes map[string][]string) error {
	for batch := range slices.Chunk(slices.Collect(maps.Keys(classes)), readBatch) {
		rows, err := s.rdb.HMGet(ctx, s.keys.Classes(), batch...).Result()
		if err != nil {
			return fmt.Errorf("read pools of nodes: %w", err)
		}
		for i, class := range batch {
			row, _ := rows[i].(string)
			for _, id := range classes[class] {
				n := nodes[id]
				n.Pools = splitLines(row)
				nodes[id] = n
			}
		}
	}
	return nil
}

// readUnavailable reads which services of the given nodes are unavailable: few nodes have any, so only these are read.
func (s *Scripts) readUnavailable(ctx context.Context, nodes map[string]berth.Node, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	server, err := s.ReadServer(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(ids, readBatch) {
		rows := make([]*redis.MapStringStringCmd, len(batch))
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range batch {
				rows[i] = p.HGetAll(ctx, s.keys.NodeUnavailable(id))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read unavailable services: %w", err)
		}
		for i, id := range batch {
			n := nodes[id]
			for service, ms := range rows[i].Val() {
				if until := msTime(ms); until.After(server.Now) {
					if n.Unavailable == nil {
						n.Unavailable = map[string]time.Time{}
					}
					n.Unavailable[service] = until
				}
			}
			nodes[id] = n
		}
	}
	return nil
}

// NodeSample is what a node's last heartbeat reported, and what it changed.
type NodeSample struct {
	Generation  int64
	Excluded    berth.ExcludeReason
	Leases      int
	HeartbeatAt time.Time
	Load        berth.NodeLoad
}

// sampleBatch is about how many samples one command reads.
const sampleBatch = 500

// SampleNodes returns the last samples of all registered nodes by id, with a command for every 500 nodes.
func (s *Scripts) SampleNodes(ctx context.Context) (map[string]NodeSample, error) {
	out := map[string]NodeSample{}
	for cursor := uint64(0); ; {
		rows, next, err := s.rdb.HScan(ctx, s.keys.NodeLoads(), cursor, "", sampleBatch).Result()
		if err != nil {
			return nil, fmt.Errorf("sample nodes: %w", err)
		}
		for i := 0; i+1 < len(rows); i += 2 {
			if f := strings.Split(rows[i+1], "\n"); len(f) == 10 {
				out[rows[i]] = NodeSample{
					Generation: number(f[0]), Excluded: berth.ExcludeReason(f[1]), Leases: int(number(f[2])), HeartbeatAt: msTime(f[3]),
					Load: berth.NodeLoad{
						CPUUsage: float(f[4]), GPUUsage: maybe(f[5]), MemoryUsage: float(f[6]),
						CurrentJobs: int(number(f[7])), ActiveWorkflows: int(number(f[8])), LatencyMs: float(f[9]),
					},
				}
			}
		}
		if cursor = next; cursor == 0 {
			return out, nil
		}
	}
}

func nodeOf(id string, f, cordon map[string]string, excluded berth.ExcludeReason, leases int) berth.Node {
	return berth.Node{
		NodeSpec: berth.NodeSpec{
			ID: id, Kind: berth.NodeKind(f["kind"]),
			Incarnation: berth.Incarnation{Host: f["host"], PID: int(number(f["pid"])), StartedAt: number(f["started_at_ms"])},
			Hostname:    f["hostname"], Zone: f["zone"], Capabilities: splitLines(f["capability_lines"]),
			Services:          splitLines(f["service_lines"]),
			MaxConcurrentJobs: int(number(f["max_concurrent_jobs"])),
			ClientURL:         f["client_url"], KeyID: f["key_id"],
		},
		Generation: number(f["generation"]), State: berth.NodeState(f["state"]), Excluded: excluded,
		Cordoned: cordon["cordoned"] == "1", DrainUntil: msTime(cordon["drain_until_ms"]),
		Load: berth.NodeLoad{
			CPUUsage: float(f["cpu_usage"]), GPUUsage: maybe(f["gpu_usage"]), MemoryUsage: float(f["memory_usage"]),
			CurrentJobs: int(number(f["current_jobs"])), ActiveWorkflows: int(number(f["active_workflows"])),
			LatencyMs: float(f["latency_ms"]),
		},
		Leases:       leases,
		RegisteredAt: msTime(f["registered_at_ms"]), HeartbeatAt: msTime(f["last_heartbeat_ms"]), UpdatedAt: msTime(f["updated_at_ms"]),
		LostAt: msTime(f["lost_at_ms"]), Departure: berth.Departure(f["departure"]),
	}
}

// brief parses the fields that write_brief in include/settle.lua writes: why the node cannot be chosen, and its class.
func brief(row string) (excluded berth.ExcludeReason, class string) {
	f := strings.Split(row, "\n")
	if len(f) != 8 {
		return "", ""
	}
	return berth.ExcludeReason(f[4]), f[7]
}
