-- Work that waits for a node in its workflow, and the hand-over of free nodes to it. Needs include fleet; include it in a function,
-- because it defines many names. Set before: stem; now; open_grace, ms of grace to open where Redis may have lost leases; known, the last
-- epoch of the guard that the caller has seen.
--   waiting             zset  pool with waiters -> tag
--   waiting:state       hash  V:{class}: the virtual time of a class; F:{pool}: the tag at which the pool's last grant ends
--   waiting:listed      hash  pool without indexes that has waiters -> the capabilities that its nodes must have, one per line
--   waiting:requests    hash  waiter -> its request, see request_row
--   waiting:promoted    zset  waiter whose workflow has to be signalled -> when to signal it again
--   pool:{id}:room:...        the waiters of a pool, users of a pool equally: the keys of a room, see include room
-- A waiter is execution/x/{user}/1/{execution}:{attempt}; its lease is execution:{execution}:{attempt}. The pools that share a node
-- are ordered by start-time fair queueing, too; the virtual time belongs to the class of the node, because pools whose nodes are
-- different do not compete.

local choosing
do -- a function has at most 200 local variables
  -- pick returns the node for a request, and what take needs.
  local function pick(request)
    local pool, asked, random, detail = request.pool, request.asked, request.random, request.detail
    local node, leases, strategy
-- include request
    listed = request.listed
-- include pick
    request.skipped = skipped
    return node and {
      id = node, generation = generation, class = class, base = base, active = active, max = max + 0, each = each, seen = seen,
      leases = leases, strategy = strategy, position = position,
    }
  end

  -- take takes a slot of the node and writes the lease.
  local function take(request, chosen)
    local pool, listed, lease, ttl, skipped = request.pool, request.listed, request.lease, request.ttl, request.skipped
    local node, generation, class, leases, position = chosen.id, chosen.generation, chosen.class, chosen.leases, chosen.position
    local base, active, max, each, seen = chosen.base, chosen.active, chosen.max, chosen.each, chosen.seen
    local strategy = listed == '' and chosen.strategy or '' -- handing over a node takes no turn
-- include reserve
    strategy = chosen.strategy
-- include write_lease
  end

  local made
  -- changes returns the functions of include settle.
  local function changes()
    if not made then
-- include settle
      made = { settle = settle, purge = purge, spec_of = spec_of }
    end
    return made
  end

  choosing = { pick = pick, take = take, changes = changes }
end
-- include score
-- include room

-- A node is reserved for HANDED_OVER ms. A workflow is signalled again after NOTIFY_AGAIN ms. What a room remembers of its waiters
-- lasts KEEP ms after the last one has entered: longer than any waits.
local HANDED_OVER, NOTIFY_AGAIN, KEEP = 10000, 2000, 172800000

-- MAX_STATE is how many rows are kept of pools that have no waiters any more.
local MAX_STATE = 10000

-- MAX_POOLS is how many pools one call considers; MAX_USERS and MAX_EACH how many users of a pool, and how many waiters of each, when
-- the first one cannot use the node.
local MAX_POOLS, MAX_USERS, MAX_EACH = 1000, 4, 8

local waiting = stem .. 'waiting'
local call = call_of(string.sub(stem, 1, -11), string.sub(stem, 1, -11) .. 'lease:guard', HANDED_OVER, NOTIFY_AGAIN, known)
local handed = {} -- waiters whose workflows the caller has to signal

local function pool_room(pool)
  local own = pool_key(stem, pool, 'room:')
  return {
    call = call, model = pool, stem = own, flows = {}, user_cap = 0,
    waiting = own .. 'waiting', order = own .. 'order', users = own .. 'users', state = own .. 'state',
  }
end

local function lease_of(waiter) return 'execution:' .. string.match(waiter, '^[^/]+/[^/]+/[^/]+/[^/]+/(.*)$') end

-- request_row formats a request for request_of.
local function request_row(ttl, pool, strategy, detail) return table.concat({ whole(ttl), pool, strategy, detail }, '\3') end

-- request_of returns the request of a waiter; nil when Redis has lost it.
local function request_of(waiter)
  local row = redis.call('HGET', waiting .. ':requests', waiter)
  if not row then return nil end
  local ttl, pool, asked, detail = string.match(row, '^([^\3]*)\3([^\3]*)\3([^\3]*)\3(.*)$')
  return {
    pool = pool, asked = asked, detail = detail, lease = lease_of(waiter), ttl = tonumber(ttl),
    random = tonumber(string.sub(redis.sha1hex(waiter .. whole(now)), 1, 13), 16),
  }
end

-- tag_of returns the tag of a pool that gets its first waiter.
local function tag_of(pool, required)
  local tag, anchor = tonumber(redis.call('HGET', waiting .. ':state', 'F:' .. pool) or '0'), string.match(required, '^[^\n]+') or pool
  for _, class in ipairs(redis.call('ZRANGE', pool_key(stem, anchor, 'classes'), 0, 31)) do
    tag = math.max(tag, tonumber(redis.call('HGET', waiting .. ':state', 'V:' .. class) or '0'))
  end
  return whole(tag)
end

-- close_room removes a pool without waiters.
local function close_room(room)
  if redis.call('ZCARD', room.waiting) > 0 then return end
  redis.call('ZREM', waiting, room.model)
  redis.call('HDEL', waiting .. ':listed', room.model)
  if redis.call('EXISTS', waiting) == 0 or redis.call('HLEN', waiting .. ':state') > MAX_STATE then redis.call('DEL', waiting .. ':state') end
end

-- wait_in adds a waiter to a pool, or keeps its place there. One that goes ahead is served before those that have just entered.
local function wait_in(waiter, pool, row, left, order, ahead, required)
  local room = pool_room(pool)
  room.lasts = left
  local first = ahead and redis.call('ZRANGE', room.stem .. 'order:x', 0, 0, 'WITHSCORES')[2]
  join(room, waiter, order .. '/0/' .. (first and precise(score_of(first)) or '0'))
  redis.call('PEXPIRE', room.state, whole(KEEP))
  redis.call('HSET', waiting .. ':requests', waiter, row)
  if required ~= '' then redis.call('HSET', waiting .. ':listed', pool, required) end
  redis.call('ZADD', waiting, 'NX', tag_of(pool, required), pool)
end

-- forget_waiter removes a waiter.
local function forget_waiter(waiter, pool)
  local room = pool_room(pool)
  if redis.call('ZSCORE', room.waiting, waiter) then leave(room, waiter) end
  redis.call('HDEL', waiting .. ':requests', waiter)
  redis.call('ZREM', waiting .. ':promoted', waiter)
  close_room(room)
end

-- leave_with lets a waiter that has got a node leave its room. The workflow of `mine` is the caller; any other is signalled.
local function leave_with(room, flow, member, waiter, node, mine)
  if head_of(flow) == waiter then
    take_first(room, flow, waiter, member, 1)
    advance(room, flow, member)
  else
    leave(room, waiter)
  end
  redis.call('HDEL', waiting .. ':requests', waiter)
  if waiter ~= mine then
    redis.call('ZADD', waiting .. ':promoted', whole(now + NOTIFY_AGAIN), waiter)
    handed[#handed + 1] = waiter
  end
  local tag = score_of(redis.call('ZSCORE', waiting, room.model)) or 0
  local past = tonumber(redis.call('HGET', waiting .. ':state', 'V:' .. node.class) or '0')
  redis.call('HSET', waiting .. ':state', 'V:' .. node.class, whole(math.max(past, tag)), 'F:' .. room.model, whole(tag + 1))
  redis.call('ZADD', waiting, whole(tag + 1), room.model)
  close_room(room)
end

-- serve_pool hands one free node to the first waiter of a pool that can use one, and returns the waiter and the node. Where `listed`
-- names a node, it has to be that one.
local function serve_pool(pool, listed, mine)
  local room = pool_room(pool)
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', room.waiting, '-inf', whole(now), 'LIMIT', 0, MAX_DEAD)) do
    forget_waiter(waiter, pool)
  end
  for _, member in ipairs(redis.call('ZRANGE', room.stem .. 'order:x', 0, MAX_USERS - 1)) do
    local flow = flow_at(room, 'x', string.sub(member, 17))
    for _, waiter in ipairs(redis.call('ZRANGE', flow.key, 0, MAX_EACH - 1)) do
      local request = request_of(waiter)
      if request then
        request.listed = listed
        if waiter ~= mine then request.ttl = HANDED_OVER end
        local node = choosing.pick(request)
        if node then
          choosing.take(request, node)
          leave_with(room, flow, member, waiter, node, mine)
          return waiter, node
        end
        local skipped = request.skipped
        if not (skipped.excluded or skipped.service_unavailable) then return nil end -- the others cannot use any either
      else
        forget_waiter(waiter, pool) -- its workflow enters it again
      end
    end
  end
  return nil
end

-- in_grace reports whether nothing may be granted.
local function in_grace() return grace(call.guard, now, open_grace, known, true) > 0 end

-- serve hands free nodes to the waiters of pools, in rounds by their tags. `pools` has pool and tag alternating, `listed` the node
-- to hand over, '' for any. It stops when `mine` has a node.
local function serve(pools, listed, mine)
  local open = {}
  for i = 1, #pools, 2 do open[#open + 1] = { pool = pools[i], tag = score_of(pools[i + 1]) } end
  for _ = 1, MAX_STEPS do
    local best
    for i, candidate in ipairs(open) do
      if not best or candidate.tag < open[best].tag then best = i end
    end
    if not best then return nil end
    local waiter, node = serve_pool(open[best].pool, listed, mine)
    if waiter and waiter == mine then return node end
    if waiter and redis.call('ZSCORE', waiting, open[best].pool) then
      open[best].tag = open[best].tag + 1
    else
      table.remove(open, best)
    end
    if waiter and listed ~= '' and redis.call('ZCARD', stem .. 'node:slots:' .. node.id) >= node.max then return nil end
  end
  return nil
end

-- serve_node hands a node to the waiters of the pools that it serves.
local function serve_node(node, pools)
  local own, found, capabilities = '\n' .. pools .. '\n', {}, nil
  local all, listed = redis.call('ZRANGE', waiting, 0, MAX_POOLS - 1, 'WITHSCORES'), nil
  for i = 1, #all, 2 do
    local serves = string.find(own, '\n' .. all[i] .. '\n', 1, true)
    if not serves then
      listed = listed or redis.call('EXISTS', waiting .. ':listed')
      local required = listed == 1 and redis.call('HGET', waiting .. ':listed', all[i])
      if required then
        capabilities = capabilities or '\n' .. choosing.changes().spec_of(stem, node.id).capabilities .. '\n'
        serves = true
        for capability in string.gmatch(required, '[^\n]+') do
          serves = serves and string.find(capabilities, '\n' .. capability .. '\n', 1, true)
        end
      end
    end
    if serves then
      found[#found + 1] = all[i]
      found[#found + 1] = all[i + 1]
    end
  end
  if #found > 0 and not in_grace() then serve(found, node.id, nil) end
end

-- give_back releases the node that is reserved for a waiter, and hands it to the next one.
local function give_back(waiter)
  local lease = lease_of(waiter)
  local row = redis.call('HGET', stem .. 'leases', lease)
  redis.call('ZREM', waiting .. ':promoted', waiter)
  if not row then return end
  local node = node_of(stem, string.match(row, '^[^\n]*\n([^\n]*)'))
  redis.call('HDEL', stem .. 'leases', lease)
  if not node or redis.call('ZREM', node.slots, lease) == 0 then return end
  choosing.changes().settle(stem, node, choosing.changes().purge(stem, node, now))
  if node.out == '' then serve_node(node, redis.call('HGET', stem .. 'classes', node.class) or '') end
end
