-- The fleet's data in Redis, shared by the scripts of nodes, pools and assignments. Every name begins with the stem that
-- keys.go passes, so that it stays in the cell:
--   node:runtime:{id}        hash  the node as others read it; expires, also while the node is registered
--   node:runtime:{id}:pools  set   its pools, likewise
--   node:briefs              hash  node -> what decisions read: see write_brief in include settle
--   node:specs               hash  node -> its registration: see write_spec in include pools
--   node:slots:{id}          zset  lease -> expiry, of the current generation
--   leases                   hash  lease -> its assignment, of leases that do not belong to a job
--   node:due                 zset  full node -> a time at which one of its leases may have expired
--   node:marks               zset  node with unavailable services -> when the first of them is available again
--   node:loads               hash  node -> its last load, see write_load in include settle
--   node:services            hash  node -> the services that it declares, one per line, in byte order; absent for none
--   classes                  hash  class -> its pools, one per line
--   class:services           hash  class -> the services that its nodes declare, likewise
--   pool:{id}:members        set   its nodes as others read them; expires
--   pool:{id}:classes        zset  the classes of its nodes, in byte order
--   pool:{id}:open           zset  those of them in which a node can be chosen, likewise
--   pool:{id}:rotation       the node that round-robin chose last: its class and location, separated by \2; expires
--   class:{class}:free       zset  the nodes that can be chosen, scored by load
--   class:{class}:nodes      set   all its nodes
--   class:{class}:locations  zset  the nodes that can be chosen, as zone, host and node, in byte order
--   class:{class}:state      hash  the number of nodes that are free, or excluded, by reason
--   capabilities             hash  capability -> number of registered nodes that have it
--   capabilities:known       zset  capability -> when a node last registered with it
-- A class has the nodes that belong to the same pools, declare the same services and have the same unavailable ones. A change of a node updates the
-- indexes of its class, so that it costs the same with one pool and with hundreds; a decision compares the classes of a pool.
-- A class is named by the hash of its pools and declared services, and its unavailable services: 41 characters where every service is available.

-- whole formats a whole number without an exponent, the same on every server.
local function whole(n) return string.format('%d', n) end

local function pool_key(stem, pool, what) return stem .. 'pool:' .. pool .. ':' .. what end

local function class_key(stem, class, what) return stem .. 'class:' .. class .. ':' .. what end

-- load_of returns the load by which nodes are compared, in thousandths: cpu + weighted memory and gpu + workflows. Leases count
-- immediately, and in proportion to the capacity. Those taken since the last report also count with the load that one piece of
-- work usually has on the node, and each more than the one before: however low a report was, it attracts a limited part of the
-- work that arrives before the next one. On a node with more slots the increase is slower, in proportion. It is not faster on
-- one with few slots, where a lease weighs much already: it would exceed every difference between reports before the node is full.
local function load_of(leases, base, active, max, each, seen)
  local TRUST = 800 -- how fast a report loses its weight against the leases taken since, on a node of TYPICAL slots or fewer
  local TYPICAL = 50
  local new = math.max(0, leases - seen)
  return string.format('%d', base + math.max(active, leases) * 1000 + math.floor(leases * 100000 / max)
    + new * each + math.floor(TRUST * new * new * TYPICAL / math.max(max, TYPICAL)))
end
