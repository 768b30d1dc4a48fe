-- Choosing a node and taking its slot, for all strategies (S1-S5, S9, S10, L6, L7, L9). Needs include fleet.
-- What is asked for, `want`: stem, now, lease, ttl, pool, strategy, random, own, own_zone, own_host, services and
-- excluded, required (lists, one per line), skipped (filled here: reason -> how often).

local LARGE = 50 -- nodes from which on a pool without a strategy compares two instead of all
local MOST = 200 -- candidates looked at before giving up; they are passed over for the job's own sake

-- detail reads what most calls do not ask for.
local function detail(want, packed)
  want.own, want.own_zone, want.own_host, want.services, want.excluded, want.required = '', '', '', '', '', ''
  if packed ~= '' then
    want.own, want.own_zone, want.own_host, want.services, want.excluded, want.required =
      string.match(packed, '^([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2$')
  end
end

local function skip(want, reason)
  want.skipped[reason] = (want.skipped[reason] or 0) + 1
  return nil, reason
end

-- usable tells whether the job can go to the node, which is in the pool's index of free ones.
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

-- pair is two different ranks of n, by the caller's random number of 52 bits; the lower one first.
local function pair(want, n)
  if n == 1 then return 0, 0 end
  local low = want.random % 67108864
  local i = math.floor(low / 67108864 * n)
  local j = math.floor((want.random - low) / 67108864 / 67108864 * (n - 1))
  if j >= i then j = j + 1 end
  return math.min(i, j), math.max(i, j)
end

-- slow is what few decisions need. It is made when it is asked for: making a function costs every call of the script.
local function slow()
-- include settle
-- include seldom
  return { settle = settle, purge = purge, purge_due = purge_due, near = near, passed = passed, missing = missing }
end

-- named is the node by its id, wherever it is; nil and the reason when it cannot take the job.
local function named(want, id)
  local node, reason = node_of(want.stem, id), 'offline'
  if node then
    if not string.find('\n' .. node.pools .. '\n', '\n' .. want.pool .. '\n', 1, true) then
      reason = 'not_in_pool'
    else
      if node.out == 'full' then -- perhaps no longer
        local seldom = slow()
        seldom.settle(want.stem, node, seldom.purge(want.stem, node, want.now))
      end
      return usable(want, id)
    end
  end
  return skip(want, reason)
end

-- first is the first usable node of an index, from the lowest score on.
local function first(want, index)
  local from, to = 0, 0
  while from < MOST do
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

-- two takes the less loaded of two random nodes (S9): the index is in the order of load, so that is the lower rank.
local function two(want, free, n)
  local better, other = pair(want, n)
  local node = usable(want, redis.call('ZRANGE', free, better, better)[1])
  if node then return node end
  if other ~= better then node = usable(want, redis.call('ZRANGE', free, other, other)[1]) end
  return node or first(want, free)
end

-- choose is the node by the pool's strategy, and the strategy that decided; nil when no node can take the job.
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
    local node = named(want, want.own)
    if node then return node, strategy end
  end
  if strategy == 'locality' then
    local node = want.own_host ~= '' and slow().near(want, free, want.own_zone .. '\1' .. want.own_host .. '\1')
    if not node and want.own_zone ~= '' then node = slow().near(want, free, want.own_zone .. '\1') end
    if node then return node, strategy end
  end
  return first(want, free), strategy
end

-- reserve takes the slot.
local function reserve(want, node, strategy)
  local leases = node.leases + 1
  if strategy == 'round-robin' then
    local turn = redis.call('HINCRBY', pool_key(want.stem, want.pool, 'state'), 'turn', '1')
    redis.call('ZADD', pool_key(want.stem, want.pool, 'ring'), turn, node.id)
  end
  if not take(want.stem, node, want.lease, want.now + want.ttl, leases) then
    local seldom = slow()
    seldom.settle(want.stem, node, seldom.purge(want.stem, node, want.now))
  end
end

-- pick chooses and takes the slot; when no node can take the job, it looks first whether leases have expired.
local function pick(want)
  local node, strategy = choose(want)
  for _ = 1, 8 do
    if node or slow().purge_due(want.stem, want.now, 16) == 0 then break end
    node, strategy = choose(want)
  end
  if node then reserve(want, node, strategy) end
  return node, strategy
end
