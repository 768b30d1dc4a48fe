-- Waiters are tasks that wait in their workflows, which costs no polling and no worker. A room sees only the leases of running
-- activities; so that its order is fair, all other tasks wait here, in the same order, and their workflows are signalled when
-- they are among the next. The ids of waiters are waiter/{path}/{cost}/{needs}/{task}:{step}. The keys are those of a room:
--   model:{m}:waiter:waiting, flow:{path}, order:{path}, finish:{path}, weights:{path}, users, state   see include room
--   model:{m}:waiter:promoted   zset  waiter whose workflow has to be signalled -> when to signal it again
--   model:{m}:waiter:signalled  zset  waiter whose call is expected in the room -> until when
--   model:{m}:waiter:ahead      zset  path below a queue -> number of waiters in these two
--   model:{m}:waiter:aside      zset  path that was set aside, because its level is at the limit -> when that was last checked

-- A waiter is expected in the room for SIGNALLED_FOR ms. A workflow is signalled again after RESIGNAL ms.
local SIGNALLED_FOR, RESIGNAL = 10000, 2000

-- The window is how many waiting calls are ahead of the waiters: as many as end until a promoted workflow has made its call. These are
-- AHEAD_PER_SLOT per slot, or those that get a slot within AHEAD_MS, at least MIN_AHEAD and for the time at most MAX_AHEAD. Flows that
-- have less than their part may have more, up to MAX_WINDOWS times as many in all: a newcomer need not wait until those of others are
-- served.
local AHEAD_PER_SLOT, AHEAD_MS, MIN_AHEAD, MAX_AHEAD, MAX_WINDOWS = 2, 3000, 100, 250, 4

-- window_of returns the window of a room.
local function window_of(room)
  if room.cap == 0 then return 0 end
  local gap = gap_of(room)
  local soon = gap >= 0 and AHEAD_MS / math.max(gap, 1) or 0
  return math.floor(math.max(AHEAD_PER_SLOT * room.cap, MIN_AHEAD, math.min(soon, MAX_AHEAD)))
end

-- waiters_of returns the waiters of a room.
function waiters_of(room)
  if not room.waiters then
    local stem = room.stem .. 'waiter:'
    room.waiters = {
      call = room.call, model = room.model, stem = stem, nodes = {}, levels = room.levels, queues = room.queues, room = room,
      user_cap = room.user_cap, waiting = stem .. 'waiting', order = stem .. 'order:', users = stem .. 'users', state = stem .. 'state',
      promoted = stem .. 'promoted', signalled = stem .. 'signalled', ahead = stem .. 'ahead', aside = stem .. 'aside',
    }
  end
  return room.waiters
end

-- ahead_of returns how many calls below a node have left the waiters without a slot. Those in the room do not count where each of them waits
-- because of a limit below the node: the order of the node is then empty, and its free slots are for others.
function ahead_of(waiters, node)
  local room = waiters.room
  local calls = redis.call('ZSCORE', room.users, node.path)
  if not calls and redis.call('EXISTS', room.order .. node.path) == 1 then calls = redis.call('HGET', room.state, 'n:' .. node.path) end
  return tonumber(redis.call('ZSCORE', waiters.ahead, node.path) or '0') + tonumber(calls or '0')
end

-- all_ahead returns how many calls have left the waiters without a slot.
local function all_ahead(waiters)
  return redis.call('ZCARD', waiters.promoted) + redis.call('ZCARD', waiters.signalled) + redis.call('ZCARD', waiters.room.waiting)
end

-- count_ahead adds to the calls of a flow that are expected.
local function count_ahead(waiters, flow, n)
  local node = flow
  while node.parent.parent do
    if tonumber(redis.call('ZINCRBY', waiters.ahead, n, node.path)) <= 0 then redis.call('ZREM', waiters.ahead, node.path) end
    node = node.parent
  end
end

-- uncount_ahead records that a call of a flow is not expected any more.
local function uncount_ahead(waiters, flow)
  count_ahead(waiters, flow, -1)
  return_path(waiters, flow)
end

-- purge_waiters removes waiters whose task has ended, and those whose call did not come.
local function purge_waiters(waiters)
  local now = whole(waiters.call.now)
  purge_waiting(waiters)
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', waiters.signalled, '-inf', now, 'LIMIT', 0, MAX_DEAD)) do
    redis.call('ZREM', waiters.signalled, waiter)
    uncount_ahead(waiters, (flow_of(waiters, waiter)))
  end
end

-- promote_first promotes the first waiter of a flow, which has `member` in the order. The workflow of `mine` is the caller; any
-- other is signalled by the caller.
local function promote_first(waiters, flow, member, mine)
  local call, waiter = waiters.call, head_of(flow)
  local _, _, cost = flow_of(waiters, waiter)
  take_first(waiters, flow, waiter, member, cost)
  if waiter == mine then
    redis.call('ZADD', waiters.signalled, whole(call.now + SIGNALLED_FOR), waiter)
  else
    redis.call('ZADD', waiters.promoted, whole(call.now + RESIGNAL), waiter)
    table.insert(call.promotions, waiters.model)
    table.insert(call.promotions, waiter)
  end
  count_ahead(waiters, flow, 1)
  advance(waiters, flow, member)
end

-- part_of returns how many calls below a node may be ahead: a part of the window by the weights on each level of its path.
local function part_of(waiters, node, window)
  local part = window
  while node.parent do
    part = part * node.weight / math.max(weights_below(waiters, node.parent), node.weight)
    node = node.parent
  end
  return math.max(1, math.floor(part))
end

-- first_below returns the next flow at or below a node, as first_flow.
local function first_below(waiters, node)
  local _, member = head_of(node)
  if not member then return first_flow(waiters, node) end
  if is_listed(node, member) then return node, member end
end

-- promote lets the next waiters leave. The flows of room.granted, and what is above them, may have less than their part: their calls got
-- slots, or they have a new waiter, which is room.waiter.
local function promote(room)
  local waiters, call, mine = waiters_of(room), room.call, room.waiter
  if redis.call('EXISTS', waiters.waiting) == 0 or grace_of(call) > 0 then return end
  purge_waiters(waiters)
  local ahead, window = all_ahead(waiters), window_of(room)
  if ahead >= window and redis.call('ZCARD', room.order) == 0 then
    -- All calls that wait in the room are those of users at their limits. They do not keep its free slots from other users.
    waiters.below = true
    ahead = window - math.max(0, free_slots(room) - (ahead - redis.call('ZCARD', room.waiting)))
  end
  for _ = 1, MAX_STEPS do
    if ahead >= window then break end
    local flow, member = first_flow(waiters)
    if not flow then break end
    if not set_full_aside(waiters, flow, member) then
      promote_first(waiters, flow, member, mine)
      ahead = ahead + 1
    end
  end
  waiters.below = nil
  for path in pairs(room.granted) do
    local node = node_at(waiters, path)
    while node.parent.parent do
      for _ = 1, MAX_STEPS do
        local flow, member
        if ahead < MAX_WINDOWS * window then flow, member = first_below(waiters, node) end
        if not flow or ahead_of(waiters, node) >= part_of(waiters, node, window) then break end
        if set_full_aside(waiters, flow, member) then break end
        promote_first(waiters, flow, member, mine)
        ahead = ahead + 1
      end
      node = node.parent
    end
  end
end

-- forget_waiter removes a waiter. It costs its flow nothing.
local function forget_waiter(room, waiter)
  local waiters = waiters_of(room)
  local flow = flow_of(waiters, waiter)
  if redis.call('ZREM', waiters.signalled, waiter) + redis.call('ZREM', waiters.promoted, waiter) > 0 then
    uncount_ahead(waiters, flow)
  elseif redis.call('ZSCORE', waiters.waiting, waiter) then
    leave(waiters, waiter)
  end
end
