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
// and reserves its slot. It takes the same arguments.
type bareDecision struct {
	script *redis.Script
	keys   []string
	nodes  int64 // that can be chosen
}

// find has the calls by which each strategy finds a node: `id`, `score`.
var find = map[berth.Strategy]string{
	berth.StrategyPowerOfTwo: poolClasses + `
redis.call('ZCARD', KEYS[4])
local r = redis.call('ZRANGE', KEYS[4], ARGV[3], ARGV[3], 'WITHSCORES')
local id, score = r[1], r[2]`,
	berth.StrategyLoadBalanced: poolClasses + `
local r = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
local id, score = r[1], r[2]`,
	berth.StrategyRoundRobin: `
local turn = redis.call('GET', KEYS[6]) or ''
local member = redis.call('ZRANGEBYLEX', KEYS[7], '(' .. turn, '+', 'LIMIT', 0, 1)[1]
  or redis.call('ZRANGEBYLEX', KEYS[7], '-', '+', 'LIMIT', 0, 1)[1]
local id = string.match(member, '\1([^\1]*)$')
local score = ARGV[3]
redis.call('SET', KEYS[6], member, 'EX', '3600')`,
	berth.StrategyLocality: poolClasses + `
redis.call('ZLEXCOUNT', KEYS[7], ARGV[4], ARGV[5])
redis.call('ZLEXCOUNT', KEYS[7], ARGV[6], ARGV[7])
local start = redis.call('ZLEXCOUNT', KEYS[7], '-', ARGV[8])
local member = redis.call('ZRANGE', KEYS[7], start, start)[1]
redis.call('ZRANGE', KEYS[7], start + 1, start + 1)
local id = string.match(member, '\1([^\1]*)$')
redis.call('ZSCORE', KEYS[4], id)
local score = redis.call('ZSCORE', KEYS[4], id)`,
}

const (
	beforeFind = `
redis.call('HGET', KEYS[2], ARGV[1])
redis.pcall('INFO', 'replication')
redis.call('HMGET', KEYS[1], 'server', 'grace', 'epoch')
local t = redis.call('TIME')`
	poolClasses = `
redis.call('ZRANGE', KEYS[3], 0, 32)`
	afterFind = `
redis.call('HGET', KEYS[5], id)
local slots = KEYS[8] .. id
redis.call('ZCOUNT', slots, t[1] .. '000', '+inf')
redis.call('ZADD', slots, t[1] + 60 .. '000', ARGV[1])
redis.call('ZADD', KEYS[4], score + 1000, id)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return { 'OK', id, '1790000000000', 'strategy' }`
)

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
		b := &bareDecision{redis.NewScript(beforeFind + find[strategy] + afterFind), []string{
			k.Guard(), k.NodeLeases(), k.PoolOpen(benchPool), k.ClassFree(class), k.NodeBriefs(), k.PoolTurn("bare"),
			k.ClassPlaces(class), k.NodeSlots(""),
		}, nodes}
		return b, b.script.Load(ctx, rdb).Err()
	}
	return nil, errors.New("no class without unavailable services")
}

// run makes the calls under a lease and returns the node.
func (b *bareDecision) run(ctx context.Context, rdb *redis.Client, i int) (node string, err error) {
	reply, err := b.script.EvalSha(ctx, rdb, b.keys, bareLease(i), benchPool+"\nn00001\n1790000000000\nstrategy"+strings.Repeat(" ", 64),
		rand.Int64N(b.nodes), "[z1\x01h7\x01", "(z1\x01h7\x01\xff", "[z1\x01", "(z1\x01\xff", "(z1\x01").Slice()
	if err != nil {
		return "", err
	}
	node, _ = reply[1].(string)
	return node, nil
}

func bareLease(i int) string { return "bare-" + strconv.Itoa(i) }
