-- Choosing a node and taking its slot, for all strategies (S1-S5, S9, S10, L6, L7, L9). Needs include fleet.
-- What is asked for, `want`: stem, lease, ttl, pool, strategy, random, now, skipped (made here: reason -> how often; nil while
-- no node was passed over), and, nil when nothing of it is asked, own, own_zone, own_host, services, excluded, required.

local LARGE = 50 -- nodes from which on a pool without a strategy compares two instead of all
local MOST = 200 -- candidates looked at before giving up; they are passed over for the job's own sake

-- asked reads the arguments that the scripts have alike; nil when one is not a number.
local function asked()
  local ttl, random = tonumber(ARGV[3]), tonumber(ARGV[6])
  if not (ttl and random) then return nil end
  local want = {
    stem = ARGV[1], lease = ARGV[2], ttl = ttl, pool = ARGV[4], strategy = ARGV[5], random = random, now = clock(),
  }
  if ARGV[7] ~= '' then
    want.own, want.own_zone, want.own_host, want.services, want.excluded, want.required =
      string.match(ARGV[7], '^([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2$')
  end
  return want
end

-- slow is what few decisions need. It is made when it is asked for: making a function costs every call of the script.
local slow

-- usable is the node when it can take the job; nil and the reason when it cannot. One from the pool's indexes can usually;
-- one asked for by its name may be anywhere.
local function usable(want, id, named)
  local node, reason = node_of(want.stem, id), nil
  if named and node and node.out == 'full' then -- perhaps no longer
    local seldom = slow()
    seldom.settle(want.stem, node, seldom.purge(want.stem, node, want.now))
  end
  if not node then
    reason = 'offline'
  elseif named and not string.find('\n' .. node.pools .. '\n', '\n' .. want.pool .. '\n', 1, true) then
    reason = 'not_in_pool'
  elseif want.excluded and string.find(want.excluded, '\n' .. id .. '\n', 1, true) then
    reason = 'excluded'
  elseif node.out ~= '' then
    reason = node.out
  elseif want.services and want.services ~= '' and slow().lacks(want, node) then
    reason = 'service_unavailable'
  else
    node.leases = leases_of(node, want.now)
    if node.leases < node.max then return node end
    reason = 'full'
  end
  want.skipped = want.skipped or {}
  want.skipped[reason] = (want.skipped[reason] or 0) + 1
  return nil, reason
end

-- pair is two different ranks of n > 1, by the caller's random number of 52 bits; the lower one first.
local function pair(want, n)
  local low = want.random % 67108864
  local i = math.floor(low / 67108864 * n)
  local j = math.floor((want.random - low) / 67108864 / 67108864 * (n - 1))
  if j >= i then return whole(i), whole(j + 1) end
  return whole(j), whole(i)
end

slow = function()
-- include settle
-- include seldom
  return {
    settle = settle, purge = purge, purge_due = purge_due, lacks = lacks, another = another, passed = passed, missing = missing,
  }
end

-- choose is the node by the pool's strategy, and the strategy that decided; nil when no node can take the job.
local function choose(want)
  local strategy, index = want.strategy, pool_key(want.stem, want.pool, 'free')
  local id, other
  if strategy == 'round-robin' then
    index = pool_key(want.stem, want.pool, 'ring')
    id = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. whole(BEHIND), 'LIMIT', '0', '1')[1]
  else
    local rank = '0'
    if strategy == '' or strategy == 'power-of-two' then
      local n = redis.call('ZCARD', index)
      strategy = (strategy ~= '' or n > LARGE) and 'power-of-two' or 'load-balanced'
      -- The less loaded of two random nodes (S9): the index is in the order of load, so that is the lower rank.
      if strategy == 'power-of-two' and n > 1 then rank, other = pair(want, n) end
    elseif want.own and (strategy == 'affinity' or strategy == 'locality') then
      local node = want.own ~= '' and usable(want, want.own, true)
      if not node and strategy == 'locality' then
-- include near
        node = want.own_host ~= '' and near(want, index, want.own_zone .. '\1' .. want.own_host .. '\1')
        if not node and want.own_zone ~= '' then node = near(want, index, want.own_zone .. '\1') end
      end
      if node then return node, strategy end
    end
    id = redis.call('ZRANGE', index, rank, rank)[1]
  end
  if not id then return nil, strategy end
  return usable(want, id) or slow().another(want, index, other), strategy
end

-- pick chooses; when no node can take the job, it looks whether leases have expired.
local function pick(want)
  local node, strategy = choose(want)
  for _ = 1, 8 do
    if node or slow().purge_due(want.stem, want.now, 16) == 0 then break end
    node, strategy = choose(want)
  end
  return node, strategy
end

-- reserve takes the slot.
local function reserve(want, node, strategy)
  if strategy == 'round-robin' then
    local turn = redis.call('HINCRBY', pool_key(want.stem, want.pool, 'state'), 'turn', '1')
    redis.call('ZADD', pool_key(want.stem, want.pool, 'ring'), whole(turn), node.id)
  end
  redis.call('ZADD', node.slots, whole(want.now + want.ttl), want.lease)
  local leases = node.leases + 1
  if leases < node.max then return weigh(want.stem, node, leases) end
  local seldom = slow()
  seldom.settle(want.stem, node, seldom.purge(want.stem, node, want.now))
end
