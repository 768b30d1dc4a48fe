-- The fleet's data in Redis, shared by the scripts of nodes, pools and assignments. Every name begins with the stem that
-- keys.go passes, so that it stays in the cell:
--   node:runtime:{id}        hash  the node; `brief` has what choosing reads: see write_brief in include settle
--   node:runtime:{id}:pools  set   its pools
--   node:slots:{id}          zset  lease -> expiry, of the current generation
--   leases                   hash  lease -> its assignment, of leases that do not belong to a job
--   node:due                 zset  full node -> a time at which one of its leases may have expired
--   pool:{id}:members        set   its nodes
--   pool:{id}:free           zset  the nodes that can be chosen, scored by load
--   pool:{id}:ring           zset  all its nodes, scored by their last turn, plus BEHIND for those that cannot be chosen
--   pool:{id}:places         zset  the nodes that can be chosen, as zone, host and node, in byte order
--   pool:{id}:state          hash  turn: the last turn; and the number of nodes that are free, or excluded, by reason
--   node:loads               hash  node -> its last load, see write_load in include settle
--   capabilities             hash  capability -> number of registered nodes that have it

-- whole formats a whole number without an exponent, the same on every server.
local function whole(n) return string.format('%d', n) end

-- clock returns Redis's time in whole milliseconds.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- BEHIND is added to the score in the ring of a node that cannot be chosen.
local BEHIND = 1000000000000000

local function pool_key(stem, pool, what) return stem .. 'pool:' .. pool .. ':' .. what end

-- node_of reads the fields that decisions use; nil when the node is not found. `out` is the reason why it cannot be chosen,
-- '' when it can; pools are one per line. One field holds them all: reading each would take a fifth of a decision.
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

-- leases_of returns the number of unexpired leases of the node.
local function leases_of(node, now) return redis.call('ZCOUNT', node.slots, whole(now + 1), '+inf') end

-- load_of returns the load by which nodes are compared, in thousandths: cpu + memory x weight + workflows. Leases count
-- immediately, and in proportion to the capacity, so that an old report does not attract all new work.
local function load_of(node, leases)
  return whole(node.base + math.max(node.active, leases) * 1000 + math.floor(leases * 100000 / node.max))
end

-- announce publishes a change of a node that is more than a heartbeat.
local function announce(stem, id)
  redis.call('PUBLISH', stem .. 'node:updated', id)
  redis.call('PUBLISH', stem .. 'node:changed', id)
end

-- update_load updates the load of a node that could be chosen before and still can: a short form of settle.
local function update_load(stem, node, leases)
  local load = load_of(node, leases)
  for pool in string.gmatch(node.pools, '[^\n]+') do redis.call('ZADD', pool_key(stem, pool, 'free'), load, node.id) end
end
