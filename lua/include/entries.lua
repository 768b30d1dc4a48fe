-- Entries are tasks that wait in their workflows, which costs no polling and no worker. A room sees only the leases of running
-- activities; so that its order is fair, all other tasks wait here, in the same order, and their workflows are signalled when
-- they are among the next. The ids of entries are entry/{queue}/{user}/{cost}/{task}:{step}. The keys are those of a room:
--   model:{m}:entry:waiting, flow:{q}/{u}, order, order:{q}, finish:{q}, users, state   see include room
--   model:{m}:entry:promoted   zset  entry whose workflow has to be signalled -> when to signal it again
--   model:{m}:entry:signalled  zset  entry whose call is expected in the room -> until when
--   model:{m}:entry:ahead      zset  {q}/{u} -> number of entries in these two
--   model:{m}:entry:aside      zset  {q}/{u} that was set aside, because its user is at the limit -> when that was last checked

-- An entry is expected in the room for SIGNALLED_FOR ms. A workflow is signalled again after RESIGNAL ms.
local SIGNALLED_FOR, RESIGNAL = 10000, 2000

-- The window is how many waiting calls are ahead of the entries: as many as end until a promoted workflow has made its call. These are
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

-- entries_of returns the entries of a room.
function entries_of(room)
  if not room.entries then
    local stem = room.stem .. 'entry:'
    room.entries = {
      call = room.call, model = room.model, stem = stem, flows = {}, room = room, user_cap = room.user_cap,
      waiting = stem .. 'waiting', order = stem .. 'order', users = stem .. 'users', state = stem .. 'state',
      promoted = stem .. 'promoted', signalled = stem .. 'signalled', ahead = stem .. 'ahead', aside = stem .. 'aside',
    }
  end
  return room.entries
end

-- ahead_of returns how many calls of a flow have left the entries without a slot.
function ahead_of(entries, flow)
  return tonumber(redis.call('ZSCORE', entries.ahead, flow.name) or '0')
    + tonumber(redis.call('ZSCORE', entries.room.users, flow.name) or '0')
end

-- all_ahead returns how many calls have left the entries without a slot.
local function all_ahead(entries)
  return redis.call('ZCARD', entries.promoted) + redis.call('ZCARD', entries.signalled) + redis.call('ZCARD', entries.room.waiting)
end

-- uncount_ahead records that a call of a flow is not expected any more.
local function uncount_ahead(entries, flow)
  if tonumber(redis.call('ZINCRBY', entries.ahead, -1, flow.name)) <= 0 then redis.call('ZREM', entries.ahead, flow.name) end
  return_flow(entries, flow)
end

-- purge_entries removes entries whose task has ended, and those whose call did not come.
local function purge_entries(entries)
  local now = whole(entries.call.now)
  purge_waiting(entries)
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', entries.signalled, '-inf', now, 'LIMIT', 0, MAX_DEAD)) do
    redis.call('ZREM', entries.signalled, entry)
    uncount_ahead(entries, (flow_of(entries, entry)))
  end
end

-- promote_first promotes the first entry of a flow, which has `member` in the order. The workflow of `mine` is the caller; any
-- other is signalled by the caller.
local function promote_first(entries, flow, member, mine)
  local call, entry = entries.call, head_of(flow)
  local _, _, cost = flow_of(entries, entry)
  take_first(entries, flow, entry, member, cost)
  if entry == mine then
    redis.call('ZADD', entries.signalled, whole(call.now + SIGNALLED_FOR), entry)
  else
    redis.call('ZADD', entries.promoted, whole(call.now + RESIGNAL), entry)
    table.insert(call.promotions, entries.model)
    table.insert(call.promotions, entry)
  end
  redis.call('ZINCRBY', entries.ahead, 1, flow.name)
  advance(entries, flow, member)
end

-- part_of returns how many calls of a flow may be ahead: a part of the window by the weight of its queue and the number of its
-- users.
local function part_of(entries, flow, window)
  local weights = 0
  for _, member in ipairs(redis.call('ZRANGE', entries.order, 0, -1)) do weights = weights + (WEIGHT[string.sub(member, 4)] or 1) end
  return math.max(1, math.floor(window * flow.weight / math.max(weights, flow.weight) / math.max(1, redis.call('ZCARD', flow.order))))
end

-- promote lets the next entries leave. The flows of room.granted may have less than their part: their calls got slots, or they have a
-- new entry, which is room.entry.
local function promote(room)
  local entries, call, mine = entries_of(room), room.call, room.entry
  if redis.call('EXISTS', entries.waiting) == 0 or grace_of(call) > 0 then return end
  purge_entries(entries)
  local ahead, window = all_ahead(entries), window_of(room)
  if ahead >= window and redis.call('ZCARD', room.order) == 0 then
    -- All calls that wait in the room are those of users at their limits. They do not keep its free slots from other users.
    entries.below = true
    ahead = window - math.max(0, room.cap - redis.call('ZCARD', room.holders) - (ahead - redis.call('ZCARD', room.waiting)))
  end
  for _ = 1, MAX_STEPS do
    if ahead >= window then break end
    local flow, member = first_flow(entries)
    if not flow then break end
    if is_full(entries, flow) then
      reorder(entries, flow, member) -- sets it aside
    else
      promote_first(entries, flow, member, mine)
      ahead = ahead + 1
    end
  end
  entries.below = nil
  for name in pairs(room.granted) do
    local queue, user = string.match(name, '^([^/]+)/(.*)$')
    local flow = flow_at(entries, queue, user)
    for _ = 1, MAX_STEPS do
      local _, member = head_of(flow)
      if ahead >= MAX_WINDOWS * window or not (member and redis.call('ZSCORE', flow.order, member)) then break end
      if ahead_of(entries, flow) >= part_of(entries, flow, window) then break end
      if is_full(entries, flow) then
        reorder(entries, flow, member)
        break
      end
      promote_first(entries, flow, member, mine)
      ahead = ahead + 1
    end
  end
end

-- forget_entry removes an entry. It costs its flow nothing.
local function forget_entry(room, entry)
  local entries = entries_of(room)
  local flow = flow_of(entries, entry)
  if redis.call('ZREM', entries.signalled, entry) + redis.call('ZREM', entries.promoted, entry) > 0 then
    uncount_ahead(entries, flow)
  elseif redis.call('ZSCORE', entries.waiting, entry) then
    leave(entries, entry)
  end
end
