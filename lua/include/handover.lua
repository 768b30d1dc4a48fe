-- Work that waits for a node in its workflow, and the hand-over of free nodes to it. Needs include fleet; include it in a function,
-- because it defines many names. Set before: stem; now; open_grace, ms of grace to open where Redis may have lost leases; known, the last
-- epoch of the guard that the caller has seen.
--   waiting             zset  pool with waiters -> tag
--   waiting:state       hash  V:{class}: the virtual time of a class; F:{pool}: the tag at which the pool's last grant ends;
--                             A:{capability}: the pool of its anchor that was looked at last; sweep: where the next sweep continues
--   waiting:listed      hash  pool without indexes that has waiters -> the capabilities that its nodes must have, one per line
--   waiting:anchors     zset  the first of these capabilities -> number of such pools
--   waiting:anchor:{c}  zset  such pools of one capability, in byte order
--   waiting:requests    hash  waiter -> its request, see request_row
--   waiting:promoted    zset  waiter whose workflow has to be signalled -> when to signal it again
--   pool:{id}:room:...        the waiters of a pool, users of a pool equally: the keys of a room, see include room
-- A waiter is node/x|user:{user}/1/{workflow id}/{lease}, whatever waits: its workflow is signalled when a node is reserved under the lease.
-- The pools that share a node are ordered by start-time fair queueing, too; the virtual time belongs to the class of the node, because pools whose nodes are
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
      made = { settle = settle, purge = purge, spec_of = spec_of, purge_due = purge_due, purge_marks = purge_marks }
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

-- MAX_LISTED is how many of the pools of one anchor a call looks at: a later call continues there. MAX_SKIPPED is how many waiters of a
-- pool that cannot use the node a call skips, MAX_EACH how many of one user.
local MAX_LISTED, MAX_SKIPPED, MAX_EACH = 64, 1000, 250

local waiting = stem .. 'waiting'
local call = call_of(string.sub(stem, 1, -11), string.sub(stem, 1, -11) .. 'lease:guard', HANDED_OVER, NOTIFY_AGAIN, known)
local handed = {} -- waiters whose workflows the caller has to signal

local function pool_room(pool)
  local own = pool_key(stem, pool, 'room:')
  return {
    call = call, model = pool, stem = own, nodes = {}, levels = {}, user_cap = 0,
    waiting = own .. 'waiting', order = own .. 'order:', users = own .. 'users', state = own .. 'state',
  }
end

local function lease_of(waiter) return string.match(waiter, '^[^/]+/[^/]+/[^/]+/[^/]+/(.*)$') end

-- request_row formats a request for request_of.
local function request_row(ttl, pool, strategy, detail) return table.concat({ whole(ttl), pool, strategy, detail }, '\3') end

-- request_of returns the request of a waiter from its row.
local function request_of(waiter, row)
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

-- anchor makes the nodes that have the first of the required capabilities find a pool without indexes; unanchor ends that.
local function anchor(pool, required)
  local capability = string.match(required, '^[^\n]+')
  if redis.call('ZADD', waiting .. ':anchor:' .. capability, 0, pool) == 1 then redis.call('ZINCRBY', waiting .. ':anchors', 1, capability) end
end

local function unanchor(pool, capability)
  if redis.call('ZREM', waiting .. ':anchor:' .. capability, pool) == 0 then return end
  if tonumber(redis.call('ZINCRBY', waiting .. ':anchors', -1, capability)) <= 0 then redis.call('ZREM', waiting .. ':anchors', capability) end
end

-- close_room removes a pool without waiters.
local function close_room(room)
  if redis.call('ZCARD', room.waiting) > 0 then return end
  local required = redis.call('HGET', waiting .. ':listed', room.model)
  redis.call('ZREM', waiting, room.model)
  if required then
    redis.call('HDEL', waiting .. ':listed', room.model)
    unanchor(room.model, string.match(required, '^[^\n]+'))
  end
  if redis.call('EXISTS', waiting) == 0 or redis.call('HLEN', waiting .. ':state') > MAX_STATE then redis.call('DEL', waiting .. ':state') end
end

-- wait_in adds a waiter to a pool, or keeps its position there. One that goes ahead is served before those that have just entered.
local function wait_in(waiter, pool, row, left, order, ahead, required)
  local room = pool_room(pool)
  room.lasts = left
  local first = ahead and redis.call('ZRANGE', room.stem .. 'order:x', 0, 0, 'WITHSCORES')[2]
  join(room, waiter, order .. '/0/' .. (first and precise(score_of(first)) or '0'))
  redis.call('PEXPIRE', room.state, whole(KEEP))
  redis.call('HSET', waiting .. ':requests', waiter, row)
  if required ~= '' then
    redis.call('HSET', waiting .. ':listed', pool, required)
    anchor(pool, required)
  end
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

-- forget_expired removes waiters whose time is over.
local function forget_expired(room)
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', room.waiting, '-inf', whole(now), 'LIMIT', 0, MAX_DEAD)) do
    forget_waiter(waiter, room.model)
  end
end

-- leave_with lets a waiter that has got a node leave its room. The workflow of `mine` is the caller; any other is signalled.
local function leave_with(room, flow, waiter, node, mine)
  local first, member = head_of(flow)
  if first == waiter then
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

-- find_waiter returns the first waiter of a pool that can use a free node, with its request, the node and its flow; or one without a
-- request, which Redis has lost. Where `listed` names a node, it has to be that one. What a waiter can use depends on the nodes that it
-- excludes and on services and capabilities only, so each such combination is tried once.
local function find_waiter(room, listed)
  local tried, skipped = {}, 0
  for from = 0, MAX_SKIPPED, 16 do
    local members = redis.call('ZRANGE', room.stem .. 'order:x', from, from + 15)
    for _, member in ipairs(members) do
      local flow, at, size = node_at(room, 'x|' .. name_of(member)), 0, 1 -- most often the first one can
      repeat
        local waiters = redis.call('ZRANGE', flow.leases, at, at + size - 1)
        local rows = waiters[1] and redis.call('HMGET', waiting .. ':requests', unpack(waiters)) or {}
        for i, row in ipairs(rows) do
          if not row then return waiters[i] end
          local request = request_of(waiters[i], row)
          local needs = string.match(request.detail, '^[^\2]*\2[^\2]*\2(.*)\2[^\2]*\2$')
          if not tried[needs] then
            tried[needs], request.listed = true, listed
            local node = choosing.pick(request)
            if node then return waiters[i], request, node, flow end
            local reasons = request.skipped
            if not (reasons.excluded or reasons.service_unavailable or reasons.service_missing) then return nil end -- the others cannot use any either
          end
          skipped = skipped + 1
          if skipped >= MAX_SKIPPED then return nil end
        end
        at, size = at + #waiters, math.min(8 * size, 64)
      until #rows == 0 or at >= MAX_EACH
    end
    if #members < 16 then return nil end
  end
  return nil
end

-- serve_pool hands one free node to the first waiter of a pool that can use one, and returns the waiter and the node. Where `listed`
-- names a node, it has to be that one.
local function serve_pool(pool, listed, mine)
  local room = pool_room(pool)
  forget_expired(room)
  for _ = 1, MAX_DEAD do
    local waiter, request, node, flow = find_waiter(room, listed)
    if not waiter then return nil end
    if node then
      if waiter ~= mine then request.ttl = HANDED_OVER end
      choosing.take(request, node)
      leave_with(room, flow, waiter, node, mine)
      return waiter, node
    end
    forget_waiter(waiter, pool) -- its workflow enters it again
  end
  return nil
end

-- in_grace reports whether nothing may be granted.
local function in_grace() return grace(call.guard, now, open_grace, known, true) > 0 end

-- serve hands free nodes to the waiters of pools, in rounds by their tags. `pools` has pool and tag alternating, `listed` the node
-- to hand over, '' for any. It stops when `mine` has a node. Pools whose waiters can use none cost no step.
local function serve(pools, listed, mine)
  local open, steps = {}, 0
  for i = 1, #pools, 2 do open[#open + 1] = { pool = pools[i], tag = score_of(pools[i + 1]) } end
  table.sort(open, function(a, b) return before(a.tag, a.pool, b.tag, b.pool) end)
  while open[1] and steps < MAX_STEPS do
    local first = table.remove(open, 1)
    local waiter, node = serve_pool(first.pool, listed, mine)
    if waiter then
      if waiter == mine then return node end
      if listed ~= '' and redis.call('ZCARD', stem .. 'node:slots:' .. node.id) >= node.max then return nil end
      steps = steps + 1
      if redis.call('ZSCORE', waiting, first.pool) then
        first.tag = first.tag + 1
        local at = 1
        while open[at] and before(open[at].tag, open[at].pool, first.tag, first.pool) do at = at + 1 end
        table.insert(open, at, first)
      end
    end
  end
  return nil
end

-- waiting_of returns those of some pools that have waiters, each followed by its tag.
local function waiting_of(pools)
  local found = {}
  for i = 1, #pools, 1000 do
    local last = math.min(i + 999, #pools)
    for n, tag in ipairs(redis.call('ZMSCORE', waiting, unpack(pools, i, last))) do
      if tag then
        found[#found + 1] = pools[i + n - 1]
        found[#found + 1] = tag
      end
    end
  end
  return found
end

-- anchored returns the pools of an anchor, MAX_LISTED of them in turns.
local function anchored(capability)
  local key, field = waiting .. ':anchor:' .. capability, 'A:' .. capability
  if redis.call('ZCARD', key) <= MAX_LISTED then return redis.call('ZRANGE', key, 0, -1) end
  local last = redis.call('HGET', waiting .. ':state', field)
  local found = redis.call('ZRANGEBYLEX', key, last and '(' .. last or '-', '+', 'LIMIT', 0, MAX_LISTED)
  if #found < MAX_LISTED then
    for _, pool in ipairs(redis.call('ZRANGEBYLEX', key, '-', last and '[' .. last or '+', 'LIMIT', 0, MAX_LISTED - #found)) do
      found[#found + 1] = pool
    end
  end
  redis.call('HSET', waiting .. ':state', field, found[#found])
  return found
end

-- add_listed adds to `pools` those without indexes to which the node belongs.
local function add_listed(node, pools)
  if redis.call('EXISTS', waiting .. ':anchors') == 0 then return end
  local all, own = choosing.changes().spec_of(stem, node.id).capabilities, {}
  for capability in string.gmatch(all, '[^\n]+') do own[#own + 1] = capability end
  if #own == 0 then return end
  all = '\n' .. all .. '\n'
  for i, number in ipairs(redis.call('ZMSCORE', waiting .. ':anchors', unpack(own))) do
    for _, pool in ipairs(number and anchored(own[i]) or {}) do
      local required = redis.call('HGET', waiting .. ':listed', pool)
      if not required then unanchor(pool, own[i]) end -- an earlier version has closed the room
      local serves = required
      for capability in string.gmatch(required or '', '[^\n]+') do
        serves = serves and string.find(all, '\n' .. capability .. '\n', 1, true)
      end
      if serves then pools[#pools + 1] = pool end
    end
  end
end

-- serve_node hands a node to the waiters of the pools that it serves.
local function serve_node(node, pools)
  local own = {}
  for pool in string.gmatch(pools, '[^\n]+') do own[#own + 1] = pool end
  add_listed(node, own)
  local found = waiting_of(own)
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
