-- The fleet as Redis has it, shared by the scripts of nodes, pools and assignments (L1-L4, L7, L9, S1-S11).
-- Every name is made of the stem that keys.go gives, so that it stays in the cell:
--   node:runtime:{id}        hash  the node; `brief` is what choosing reads of it: see note in include settle
--   node:runtime:{id}:pools  set   its pools
--   node:slots:{id}          zset  lease -> expiry, of the current generation
--   leases                   hash  lease -> what it was given, of those that belong to no job
--   node:due                 zset  full node -> a time at which one of its leases may have expired
--   pool:{id}:members        set   its nodes
--   pool:{id}:free           zset  the nodes that can be chosen, scored by load
--   pool:{id}:ring           zset  all its nodes, scored by their last turn, those that cannot be chosen far behind
--   pool:{id}:places         zset  the nodes that can be chosen, as zone, host, node in the order of bytes
--   pool:{id}:state          hash  turn: the last turn given; and how many nodes are free or out, by reason
--   capabilities             hash  capability -> living nodes that have it

-- whole prints a whole number without an exponent, alike on every server.
local function whole(n) return string.format('%d', n) end

-- clock is Redis's time in whole milliseconds.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- BEHIND is how far behind in its ring a node stands that cannot be chosen.
local BEHIND = 1000000000000000

local function pool_key(stem, pool, what) return stem .. 'pool:' .. pool .. ':' .. what end

-- node_of reads what is decided by; nil when there is no such node. `out` is why it cannot be chosen, '' when it can; pools
-- are one per line. Reading a field for each would be a fifth of a decision.
local function node_of(stem, id)
  local key = stem .. 'node:runtime:' .. id
  local brief = redis.call('HGET', key, 'brief')
  if not brief then return nil end
  local generation, base, active, max, out, pools = string.match(brief, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  return {
    id = id, key = key, slots = stem .. 'node:slots:' .. id, brief = brief, generation = generation,
    base = tonumber(base), active = tonumber(active), max = tonumber(max), out = out, pools = pools,
  }
end

-- leases_of is how many leases of the node live.
local function leases_of(node, now) return redis.call('ZCOUNT', node.slots, whole(now + 1), '+inf') end

-- load_of is what nodes are compared by, in thousandths (S2): cpu + memory x weight + workflows, where leases count at
-- once, and at their share of the capacity, so that a stale report makes no herd.
local function load_of(node, leases)
  return whole(node.base + math.max(node.active, leases) * 1000 + math.floor(leases * 100000 / node.max))
end

-- weigh puts a node that can be chosen, before and after, where its load says: the short way of settle.
local function weigh(stem, node, leases)
  local load = load_of(node, leases)
  for pool in string.gmatch(node.pools, '[^\n]+') do redis.call('ZADD', pool_key(stem, pool, 'free'), load, node.id) end
end
