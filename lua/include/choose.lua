-- Choosing a node and taking its slot, for all strategies. Needs includes fleet and settle.
-- The request is `want`: stem, now, lease, ttl, pool, strategy, random, own; places, services, excluded and required
-- (lists, one item per line), skipped (filled here: reason -> number of nodes).

local LARGE = 50 -- nodes above which a pool without a strategy compares two of them instead of all
local MAX_CANDIDATES = 200 -- candidates that the job itself excludes, before the search ends

-- asked returns the request from the arguments that assign and dispatch_job share.
local function asked(now)
  local want = {
    stem = ARGV[1], lease = ARGV[2], ttl = tonumber(ARGV[3]), pool = ARGV[4], strategy = ARGV[5], random = tonumber(ARGV[6]),
    now = now, skipped = {},
  }
  want.own, want.places, want.services, want.excluded, want.required =
    string.match(ARGV[7], '^([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2$')
  return want
end

local function skip(want, reason)
  want.skipped[reason] = (want.skipped[reason] or 0) + 1
  return nil, reason
end

-- usable returns the node if it can take the job, else nil and the reason. The node is in the pool's index of free ones.
local function usable(want, id)
  if want.excluded ~= '' and string.find(want.excluded, '\n' .. id .. '\n', 1, true) then return skip(want, 'excluded') end
  local node = node_of(want.stem, id)
  if not node then return skip(want, 'offline') end
  if node.out ~= '' then return skip(want, node.out) end
  if want.services ~= '' and tonumber(redis.call('HGET', node.key, 'unavailable_until')) > want.now then
    for service in string.gmatch(want.services, '[^\n]+') do
      local till = redis.call('HGET', want.stem .. 'node:unavailable:' .. id, service)
      if till and tonumber(till) > want.now then return skip(want, 'service_unavailable') end
    end
  end
  node.leases = leases_of(node, want.now)
  if node.leases >= node.max then return skip(want, 'full') end
  return node
end

-- pair returns two different ranks below n, by the caller's random number of 52 bits; the lower one first.
local function pair(want, n)
  if n == 1 then return 0, 0 end
  local low = want.random % 67108864
  local i = math.floor(low / 67108864 * n)
  local j = math.floor((want.random - low) / 67108864 / 67108864 * (n - 1))
  if j >= i then j = j + 1 end
  return math.min(i, j), math.max(i, j)
end

-- by_id returns the node with the id if it can take the job, else nil and the reason.
local function by_id(want, id)
  local node = node_of(want.stem, id)
  if not node then return skip(want, 'offline') end
  if not string.find('\n' .. node.pools .. '\n', '\n' .. want.pool .. '\n', 1, true) then return skip(want, 'not_in_pool') end
  if node.out == 'full' then settle(want.stem, node, purge(want.stem, node, want.now)) end -- leases may have expired
  return usable(want, id)
end

-- first returns the usable node with the lowest score in an index.
local function first(want, index)
  local from, to = 0, 0
  while from < MAX_CANDIDATES do
    local ids = redis.call('ZRANGE', index, from, to, 'WITHSCORES')
    if #ids == 0 then return nil end
    for i = 1, #ids, 2 do
      if tonumber(ids[i + 1]) >= BEHIND then return nil end
      local node = usable(want, ids[i])
      if node then return node end
    end
    from, to = to + 1, to + 16
  end
  return nil
end

-- two returns the less loaded of two random nodes. The index is ordered by load, so that is the one with the lower rank.
local function two(want, free, n)
  local better, other = pair(want, n)
  local node = usable(want, redis.call('ZRANGE', free, better, better)[1])
  if node then return node end
  if other ~= better then node = usable(want, redis.call('ZRANGE', free, other, other)[1]) end
  return node or first(want, free)
end

-- near returns the less loaded of two random nodes at a place.
local function near(want, free, place)
  local places = pool_key(want.stem, want.pool, 'places')
  local from, to = '[' .. place, '(' .. place .. '\255'
  local n = redis.call('ZLEXCOUNT', places, from, to)
  if n == 0 then return nil end
  local start, i, j = redis.call('ZLEXCOUNT', places, '-', '(' .. place), pair(want, n)
  local ids = {}
  for _, rank in ipairs({ start + i, start + j }) do
    ids[#ids + 1] = string.match(redis.call('ZRANGE', places, rank, rank)[1], '\1([^\1]*)$')
  end
  if (tonumber(redis.call('ZSCORE', free, ids[2])) or 0) < (tonumber(redis.call('ZSCORE', free, ids[1])) or 0) then
    ids[1], ids[2] = ids[2], ids[1]
  end
  local node = usable(want, ids[1]) or usable(want, ids[2])
  if node then return node end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', places, from, to, 'LIMIT', 0, MAX_CANDIDATES)) do
    node = usable(want, string.match(member, '\1([^\1]*)$'))
    if node then return node end
  end
  return nil
end

-- choose returns the node by the pool's strategy, and the strategy that decided; nil when no node can take the job.
local function choose(want)
  local free = pool_key(want.stem, want.pool, 'free')
  local strategy = want.strategy
  if strategy == 'round-robin' then
    return first(want, pool_key(want.stem, want.pool, 'ring')), strategy
  end
  if strategy == '' or strategy == 'power-of-two' then
    local n = redis.call('ZCARD', free)
    if n == 0 then return nil, strategy end
    if strategy == 'power-of-two' or n > LARGE then return two(want, free, n), 'power-of-two' end
    strategy = 'load-balanced'
  end
  if want.own ~= '' and (strategy == 'affinity' or strategy == 'locality') then
    local node = by_id(want, want.own)
    if node then return node, strategy end
  end
  if strategy == 'locality' then
    for place in string.gmatch(want.places, '[^\n]+') do
      local node = near(want, free, place)
      if node then return node, strategy end
    end
  end
  return first(want, free), strategy
end

-- count_skipped counts the skipped nodes, and on failure all nodes of the pool, in the statistics. It returns reasons and
-- numbers, alternating.
local function count_skipped(want, failed)
  local reasons = {}
  if failed then
    local all, kept = redis.call('HGETALL', pool_key(want.stem, want.pool, 'state')), want.skipped
    want.skipped = { excluded = kept.excluded, service_unavailable = kept.service_unavailable, not_in_pool = kept.not_in_pool }
    for i = 1, #all, 2 do
      if all[i] ~= 'turn' and all[i] ~= 'free' and tonumber(all[i + 1]) > 0 then want.skipped[all[i]] = tonumber(all[i + 1]) end
    end
    if #want.missing > 0 then want.skipped.capability_missing = 1 end
  end
  for reason, n in pairs(want.skipped) do
    redis.call('HINCRBY', want.stem .. 'stats:excludes', want.pool .. '|' .. reason, whole(n))
    reasons[#reasons + 1] = reason
    reasons[#reasons + 1] = whole(n)
  end
  return reasons
end

-- missing returns the capabilities of a list, one per line, that no registered node has.
local function missing(stem, required)
  local asked, out = {}, {}
  for c in string.gmatch(required, '[^\n]+') do asked[#asked + 1] = c end
  if #asked == 0 then return out end
  for i, n in ipairs(redis.call('HMGET', stem .. 'capabilities', unpack(asked))) do
    if not n then out[#out + 1] = asked[i] end
  end
  return out
end

-- refused returns why no node can take the job, reasons and numbers alternating, and the missing capabilities.
local function refused(want)
  want.missing = missing(want.stem, want.required)
  return count_skipped(want, true), want.missing
end

-- pick chooses a node; when none can take the job, it removes expired leases and chooses again.
local function pick(want)
  local node, strategy = choose(want)
  for _ = 1, 8 do
    if node or purge_due(want.stem, want.now, 16) == 0 then break end
    node, strategy = choose(want)
  end
  return node, strategy
end

-- reserve takes the slot, and counts the nodes that were skipped for it.
local function reserve(want, node, strategy)
  if next(want.skipped) then count_skipped(want, false) end
  local leases = node.leases + 1
  if strategy == 'round-robin' then
    local turn = redis.call('HINCRBY', pool_key(want.stem, want.pool, 'state'), 'turn', '1')
    redis.call('ZADD', pool_key(want.stem, want.pool, 'ring'), turn, node.id)
  end
  redis.call('ZADD', node.slots, whole(want.now + want.ttl), want.lease)
  if leases < node.max then return update_load(want.stem, node, leases) end
  settle(want.stem, node, purge(want.stem, node, want.now))
end
