package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"berth"
	"berth/lua"
)

// bareDecision makes the Redis calls of a decision without deciding anything: the least that a script could do which finds a node
// and reserves its slot. TestBareDecision compares its calls with those of the decision.
type bareDecision struct {
	script *redis.Script
	keys   []string
	stem   string
	nodes  int64 // that can be chosen
	// strategy is the one whose calls it makes.
	strategy berth.Strategy
}

// The script's local variables are the keys and values that the decision derives from its arguments.
const (
	// guardCalls reads what every decision reads first.
	guardCalls = `
local t = redis.call('TIME')
redis.call('HGET', KEYS[2], ARGV[2])
redis.pcall('INFO', 'replication')
redis.call('HMGET', KEYS[1], 'server', 'grace', 'epoch', 'nodes', 'format')`
	classCalls = `
redis.call('ZRANGE', open, '0', '32')`
	// nodeCalls reads the node with the id and the number of its leases.
	nodeCalls = `
redis.call('HGET', briefs, id)
local slots = slots_of .. id
redis.call('ZCOUNT', slots, t[1] .. '000', '+inf')`
	// skippedCalls counts the nodes without the service.
	skippedCalls = `
redis.call('HINCRBY', statistics, skipped, '1')`
	reserveCalls = `
redis.call('ZADD', slots, t[1] + 60 .. '000', ARGV[2])
redis.call('ZADD', free, ARGV[3], id)
redis.call('HSET', KEYS[2], ARGV[2], lease)
return { 'OK', id, '1790000000000', strategy }`
)

// strategyCalls has the calls of each strategy: those that find a node's id, and the others.
var strategyCalls = map[berth.Strategy]string{
	berth.StrategyPowerOfTwo: classCalls + `
redis.call('ZCARD', free)
local id = redis.call('ZRANGE', free, ARGV[6], ARGV[6])[1]` + nodeCalls + skippedCalls,
	berth.StrategyLoadBalanced: classCalls + `
local id = redis.call('ZRANGE', free, '0', '0')[1]` + nodeCalls + skippedCalls,
	// Behind the last node of the class it looks for other classes and begins again.
	berth.StrategyRoundRobin: `
local location = string.sub(redis.call('GET', rotation), #class + 2)
local member = redis.call('ZRANGEBYLEX', locations, '(' .. location, '+', 'LIMIT', '0', '1')[1]
local again = not member
if again then
  redis.call('ZRANGEBYLEX', open, behind, '+', 'LIMIT', '0', '32')
  redis.call('ZRANGEBYLEX', open, '-', behind, 'LIMIT', '0', '32')
  member = redis.call('ZRANGEBYLEX', locations, '-', '[' .. location, 'LIMIT', '0', '1')[1]
end
local id = string.match(member, '\1([^\1]*)$')` + nodeCalls + `
if again then redis.call('HINCRBY', statistics, skipped, '1') end
redis.call('SET', rotation, class .. '\2' .. member, 'EX', '3600')`,
	berth.StrategyLocality: classCalls + `
local start = host
if redis.call('ZLEXCOUNT', locations, '[' .. host, '(' .. host .. '\255') == 0 then
  start = zone
  redis.call('ZLEXCOUNT', locations, '[' .. zone, '(' .. zone .. '\255')
end
start = redis.call('ZLEXCOUNT', locations, '-', '(' .. start)
local one, other = string.format('%d', start), string.format('%d', start + 1)
local id = string.match(redis.call('ZRANGE', locations, one, one)[1], '\1([^\1]*)$')
redis.call('ZRANGE', locations, other, other)
redis.call('ZSCORE', free, id)
redis.call('ZSCORE', free, id)` + nodeCalls + skippedCalls,
}

// newBareDecision prepares the calls for the class of the pool's nodes on which every service is available.
func newBareDecision(ctx context.Context, rdb *redis.Client, s *lua.Scripts, strategy berth.Strategy) (*bareDecision, error) {
	k := s.Keys()
	classes, err := rdb.ZRange(ctx, k.PoolClasses(benchPool), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read classes: %w", err)
	}
	for _, class := range classes {
		if strings.Contains(class, markedService) {
			continue
		}
		nodes, err := rdb.ZCard(ctx, k.ClassFree(class)).Result()
		if err != nil {
			return nil, fmt.Errorf("count nodes: %w", err)
		}
		if err := rdb.Set(ctx, k.PoolRotation(barePool), class+"\x02", 0).Err(); err != nil {
			return nil, fmt.Errorf("begin the rotation: %w", err)
		}
		b := &bareDecision{
			keys: []string{k.Guard(), k.NodeLeases()}, stem: strings.TrimSuffix(k.NodeSlots(""), "node:slots:"), nodes: nodes, strategy: strategy,
		}
		var text strings.Builder
		for name, value := range map[string]string{
			"open": k.PoolOpen(benchPool), "class": class, "behind": "(" + class, "free": k.ClassFree(class), "locations": k.ClassLocations(class),
			"rotation": k.PoolRotation(barePool), "briefs": k.NodeBriefs(), "slots_of": k.NodeSlots(""), "statistics": k.ExcludeStats(),
			"skipped": benchPool + "|service_unavailable", "host": benchZone + "\x01" + benchHost + "\x01", "zone": benchZone + "\x01",
			"strategy": string(strategy), "lease": benchPool + "\nn00001\n1790000000000\n" + string(strategy) + "\n" + strings.Repeat(" ", 64),
		} {
			fmt.Fprintf(&text, "local %s = [[%s]]\n", name, value)
		}
		b.script = redis.NewScript(text.String() + guardCalls + strategyCalls[strategy] + reserveCalls)
		return b, b.script.Load(ctx, rdb).Err()
	}
	return nil, errors.New("no class without unavailable services")
}

// run makes the calls under a lease and returns the node. Its arguments are as many and as long as those of the decision; the third is
// the load that the node gets, and the sixth its rank.
func (b *bareDecision) run(ctx context.Context, rdb *redis.Client, i int) (node string, err error) {
	reply, err := b.script.EvalSha(ctx, rdb, b.keys, b.stem, bareLease(i), 10_000+rand.Int64N(90_000), benchPool, string(b.strategy),
		rand.Int64N(b.nodes), bareDetail, lua.NodeGrace.Milliseconds(), 1).Slice()
	if err != nil {
		return "", err
	}
	node, _ = reply[1].(string)
	return node, nil
}

// barePool is where it keeps its rotation; the name is as long as benchPool.
const barePool = "translate:bench"

// bareDetail is as long as the texts of the decision's request.
const bareDetail = "\x02" + benchZone + "\x01" + benchHost + "\x01\n" + benchZone + "\x01\x02" + markedService + "\x02\x02" + benchPool + "\x02\x02"

func bareLease(i int) string { return "b" + strconv.Itoa(i) }

// decidedLease is the lease of the i-th decision, as long as that of its baseline.
func decidedLease(i int) string { return "d" + strconv.Itoa(i) }
