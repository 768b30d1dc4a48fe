-- A model's slots and the room in which leases wait for one, shared by the scripts of model slots. A pool of nodes has such a room, too:
-- see include handover. The ids of leases are {process}/{path}/{cost}/{rest}; see Lease in slot.go. A path is a queue and the levels
-- below it, such as q_paid_stream|team:a|user:b; the order is a tree of paths, and each lease waits at a leaf, its flow. Every key begins
-- with the prefix that keys.go passes:
--   model:{m}:holders         zset  lease -> expiry in Redis milliseconds; a grant not claimed yet has a short one
--   model:{m}:waiting         zset  waiting lease -> expiry
--   model:{m}:flow:{path}     zset  waiting lease of a flow -> order of arrival
--   model:{m}:order:{path}    zset  child of a path with waiting leases -> tag; without those at their limit. The empty path is the
--                                   root, whose children are the queues; a flow is named by the order of its first lease and its level
--   model:{m}:finish:{path}   zset  child of a path -> tag at which its last grant ends
--   model:{m}:weights:{path}  zset  child in the order whose weight is not the default -> weight
--   model:{m}:users           zset  flow -> number of waiting leases
--   model:{m}:state           hash  arrivals: the last order; V:{path}: the virtual time among the children of a path; n:{path}: number
--                                   of waiting leases below it; taken: when the last slot was granted; granted: when
--                                   the last waiter got one; turn: ms from one such grant to the next, times the cap,
--                                   smoothed
--   model:{m}:limits          hash  base: the limits that processes pass; cap, rpm, tpm, paused, reason, resumed: those of
--                                   operators, see set_model_limits;
--                                   until, cause: a pause with an end; probe: 1 while one call at a time tries a
--                                   model that failed, see report_call
--   model:{m}:pace            hash  requests, tokens: when the granted ones are used up
--   slots:{level}             zset  lease below a level with a limit, such as user:b, of all models -> expiry
--   slots:{level}:aside       zset  {model} {path} in which the level was set aside -> since when
--   slots:provider:{p}        zset  lease of a provider, of all its models -> expiry
--   slots:provider:{p}:aside  zset  model that waits for a slot of its provider -> since when
--   slots:levels              hash  team or application, such as team:a -> its weight and its limit of slots, see set_level
--   lease:guard               hash  see include guard
--
-- The order is start-time fair queueing (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996) at each path: the children share its parent's
-- slots by their weights. The leases of a flow are served first in, first out, and only the first has a tag. A tag is the maximum of the
-- virtual time and of the end of the child's last grant. The lowest tag is served first and becomes the virtual time; a grant ends
-- cost / weight later, on each level of the path. A child without waiting leases whose last grant has ended for longer returns up to
-- CREDIT before the virtual time, and is therefore served before those that always wait: it has not used its share. Queues do not.

-- include clock
-- include guard

-- The work of a call does not depend on the number of waiters: it removes so many dead ones, and skips so many that
-- cannot be granted. What is left has the next call, for which `next` asks soon.
local MAX_DEAD, MAX_STEPS = 64, 64

-- MAX_ROOMS is how many other models a release serves.
local MAX_ROOMS = 16

-- GAP_WEIGHT is the number of grants over which the time between two is smoothed.
local GAP_WEIGHT = 32

-- CREDIT is how much of its share, in costs, a user keeps that did not use it.
local CREDIT = 1

-- ASIDE_TTL is for how many milliseconds a set-aside model is remembered. Each renewal of a waiter tries it again. Waiters are not
-- renewed: ENTRY_ASIDE_TTL is longer than they wait.
local ASIDE_TTL, ENTRY_ASIDE_TTL = 600000, 172800000

-- call_of returns what the parts of one call share.
local function call_of(prefix, guard, ttl, grant, known)
  return {
    prefix = prefix, guard = guard, ttl = ttl, grant = grant, known = known, now = clock(), used = {}, levels_next = nil,
    freed = {}, -- levels and providers with slots that became free, see unhold
    promotions = {}, -- model and waiter of each workflow that the caller has to signal
  }
end

-- grace_of returns for how many milliseconds nothing may be granted.
local function grace_of(call)
  if not call.grace then call.grace = grace(call.guard, call.now, call.ttl, call.known) end
  return call.grace
end

-- limits_of parses the limits that a process passes; nil when they are unreadable. 0 is no limit, except for cap.
local parsed = {}
local function limits_of(base)
  if parsed[base] == nil then
    local ok, l = pcall(cjson.decode, base)
    local readable = ok and type(l) == 'table' and type(l.queues) == 'table' and type(l.provider) == 'string'
    for _, field in ipairs({ 'cap', 'userCap', 'rpm', 'tpm', 'providerCap' }) do readable = readable and type(l[field]) == 'number' end
    parsed[base] = readable and l
  end
  return parsed[base] or nil
end

-- room_of returns a model's room with its current limits. A process passes its limits, which remain for calls that concern
-- the room without being about it; nil when no process has passed any. They have to be readable.
local function room_of(call, model, base)
  local stem = call.prefix .. 'model:' .. model .. ':'
  local v = redis.call('HMGET', stem .. 'limits', 'base', 'cap', 'rpm', 'tpm', 'paused', 'until', 'probe')
  if base and v[1] ~= base and not call.reads then redis.call('HSET', stem .. 'limits', 'base', base) end
  local l = limits_of(base or v[1] or '')
  if not l then return nil end
  return {
    call = call, model = model, stem = stem, nodes = {}, levels = {}, queues = l.queues, mine = {}, granted = {},
    holders = stem .. 'holders', waiting = stem .. 'waiting', order = stem .. 'order:', users = stem .. 'users',
    state = stem .. 'state', pace = stem .. 'pace',
    cap = math.min(tonumber(v[2] or l.cap), v[7] == '1' and 1 or math.huge), rpm = tonumber(v[3] or l.rpm), tpm = tonumber(v[4] or l.tpm), user_cap = l.userCap,
    paused = v[5] == '1', resumes = tonumber(v[6] or '0'), probing = v[7] == '1',
    provider = l.providerCap > 0 and call.prefix .. 'slots:provider:' .. l.provider, provider_cap = l.providerCap,
  }
end

-- include tree

local function slots_key(call, level) return call.prefix .. 'slots:' .. level end

-- in_use returns how many slots a level has, of all models.
local function in_use(call, level)
  if not call.used[level] then
    local key = slots_key(call, level)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(call.now))
    call.used[level] = redis.call('ZCARD', key)
  end
  return call.used[level]
end

local ahead_of, waiters_of -- see include model_waiters

-- is_full reports whether a node is at its limit. When its slots expire is then a time to try again. Waiters
-- may be ahead so far that the next call is there when one of the node's ends, except with room.below.
local function is_full(room, node)
  local call, limit = room.call, node.limit
  if limit == 0 then return false end
  local used = in_use(call, node.name)
  if room.promoted then
    used, limit = used + ahead_of(room, node), (room.below and 1 or 2) * limit
  end
  if used < limit then return false end
  local first = redis.call('ZRANGE', slots_key(call, node.name), 0, 0, 'WITHSCORES')
  if first[2] then call.levels_next = math.min(call.levels_next or call.ttl, math.max(1, tonumber(first[2]) - call.now)) end
  return true
end

-- full_on returns the highest node of a flow's path that is at its limit; nil where none is.
local function full_on(room, flow)
  local full
  for _, node in ipairs(flow.limited) do
    if is_full(room, node) then full = full or node end
  end
  return full
end

local function set_aside(call, key, member, ttl)
  redis.call('ZADD', key .. ':aside', 'NX', whole(call.now), member)
  if redis.call('PTTL', key .. ':aside') < ttl then redis.call('PEXPIRE', key .. ':aside', ttl) end
end

-- set_node_aside takes a node that is at its limit out of the order; `member` is that of a flow.
local function set_node_aside(room, node, member)
  unlist(node, member)
  unlist_empty(node.parent)
  set_aside(room.call, slots_key(room.call, node.name), room.model .. ' ' .. node.path, room.promoted and ENTRY_ASIDE_TTL or ASIDE_TTL)
  if room.aside then redis.call('ZADD', room.aside, whole(room.call.now), node.path) end
end

-- set_full_aside sets the highest node of a flow's path aside that is at its limit, and reports whether one is. The flow has `member` in
-- the order.
local function set_full_aside(room, flow, member)
  local full = full_on(room, flow)
  if full then set_node_aside(room, full, full == flow and member) end
  return full ~= nil
end

-- enter puts a node into the order, and those above it, unless one is at its limit. A flow is not in it, and has `member` there. What
-- returns with tags has these, if they are lower.
local function enter(room, node, member, tags)
  while node.parent do
    if is_full(room, node) then return set_node_aside(room, node, member) end
    if room.aside and node.limit > 0 then redis.call('ZREM', room.aside, node.path) end
    local tag, present = tags and tags[node.depth], not member and redis.call('ZSCORE', node.parent.order, node.name)
    if tag and tag > 0 then
      if not present or tag < tonumber(present) then list(node, member, tag) end
    elseif not present then
      list(node, member, tag_of(room, node, 0))
    elseif not tags then
      return -- and so is what is above
    end
    member, node = nil, node.parent
  end
end

-- reorder updates the order after a change of a flow's first lease, which was `member` there.
local function reorder(room, flow, member, tags)
  if member then redis.call('ZREM', flow.parent.order, member) end
  local lease, first = head_of(flow)
  if lease then
    enter(room, flow, first, tags)
  elseif room.aside then
    redis.call('ZREM', room.aside, flow.path)
  end
  unlist_empty(flow.parent)
end

-- return_node puts a node that was set aside back into the order where it is below its limit. It reports whether leases wait below it.
local function return_node(room, node)
  local waits, member
  if redis.call('ZCARD', node.order) > 0 then
    waits = true
  else
    waits, member = head_of(node)
  end
  if waits and not is_listed(node, member) then
    enter(room, node, member)
  elseif room.aside then
    redis.call('ZREM', room.aside, node.path)
  end
  return waits and true or false
end

-- return_path returns what was set aside on the path of a flow.
local function return_path(room, flow)
  for i = #flow.limited, 1, -1 do return_node(room, flow.limited[i]) end
end

-- try_again returns what was set aside on the path of a flow with leases, whose first one is `member` in the order. The limit because of
-- which a node was set aside may have been removed.
local function try_again(room, flow, member)
  if not is_listed(flow, member) then enter(room, flow, member) end
  local node = flow.parent
  while node.depth > 1 do
    return_node(room, node)
    node = node.parent
  end
end

-- leave removes a waiting lease. It costs its flow nothing: the next one has its tag. The next waiter of its user may follow.
local function leave(room, lease)
  local flow = flow_of(room, lease)
  local first, member = head_of(flow)
  local tag = first == lease and redis.call('ZSCORE', flow.parent.order, member)
  redis.call('ZREM', room.waiting, lease)
  if redis.call('ZREM', flow.leases, lease) == 0 then return end
  if first == lease then reorder(room, flow, member, { [flow.depth] = tonumber(tag or nil) }) end
  uncount_waiting(room, flow)
  if room.holders then
    local waiters = waiters_of(room)
    return_path(waiters, node_at(waiters, flow.path))
  end
end

-- hold gives a lease of a flow a slot until expiry, or prolongs it.
local function hold(room, lease, flow, expiry)
  local call = room.call
  expiry = whole(expiry)
  redis.call('ZADD', room.holders, expiry, lease)
  for _, node in ipairs(flow.limited) do
    call.used[node.name] = in_use(call, node.name) + redis.call('ZADD', slots_key(call, node.name), expiry, lease)
    redis.call('PEXPIRE', slots_key(call, node.name), call.ttl)
  end
  if room.provider then
    redis.call('ZADD', room.provider, expiry, lease)
    redis.call('PEXPIRE', room.provider, call.ttl)
  end
end

-- free removes a lease from the slots of a level or provider.
local function free(call, key, lease, level)
  redis.call('ZREM', key, lease)
  if not call.freed[key] then
    call.freed[key] = true
    table.insert(call.freed, { key = key, level = level })
  end
end

-- unhold takes its slot from a lease of a flow, whatever the reason, and reports whether it had one. What was set aside because of a limit
-- returns with serve.
local function unhold(room, lease, flow)
  local call = room.call
  if redis.call('ZREM', room.holders, lease) == 0 then return false end
  for _, node in ipairs(flow.limited) do
    free(call, slots_key(call, node.name), lease, node.name)
    call.used[node.name] = nil
  end
  if room.provider then free(call, room.provider, lease) end
  return true
end

-- purge_waiting removes waiters whose time is over.
local function purge_waiting(room)
  local dead = redis.call('ZRANGEBYSCORE', room.waiting, '-inf', whole(room.call.now), 'LIMIT', 0, MAX_DEAD)
  for _, lease in ipairs(dead) do leave(room, lease) end
end

-- purge removes expired holders, and waiters whose process stopped renewing them.
local function purge(room)
  local dead = redis.call('ZRANGEBYSCORE', room.holders, '-inf', whole(room.call.now), 'LIMIT', 0, MAX_DEAD)
  for _, lease in ipairs(dead) do unhold(room, lease, (flow_of(room, lease))) end
  purge_waiting(room)
end

-- waiter_ttl returns how long a waiter lasts without renewal: shorter than a lease by one grant, so that grants to the
-- waiters of a dead process do not hold back its slots beyond their expiry.
local function waiter_ttl(call) return math.max(call.ttl - call.grant, math.ceil(call.ttl / 2)) end

-- join adds a lease to the room, or keeps its position there. A flow that was set aside returns if its user is below the limit.
local function join(room, lease, ticket)
  local flow = flow_of(room, lease)
  local first, member, number = head_of(flow)
  if redis.call('ZADD', room.waiting, whole(room.call.now + (room.lasts or waiter_ttl(room.call))), lease) == 0 then
    if first then try_again(room, flow, member) end
    return
  end
  local order, tags = parse_ticket(ticket)
  if order == 0 then order = order_of(room) end
  redis.call('ZADD', flow.leases, whole(order), lease)
  local fresh = count_waiting(room, flow)
  if not first then fresh[flow.depth] = flow end
  for depth, node in pairs(fresh) do
    if depth > 1 and (tags[depth] or 0) == 0 then tags[depth] = tag_of(room, node, CREDIT) end
  end
  if not first or order <= number then
    reorder(room, flow, member, tags)
  else
    try_again(room, flow, member)
  end
end

-- pace_left returns in how many milliseconds a limit per minute permits the next grant, of so many units, by the generic cell
-- rate algorithm (ITU-T I.371) with a burst of a tenth: no minute has more than the limit, except where a grant has more units.
local function pace_left(limit, units, used_up, now)
  local burst = math.max(1, math.floor(limit / 10))
  units = math.min(units, burst)
  local interval = 60000 / (limit - burst + units)
  return math.max(0, math.ceil(used_up - (burst - units) * interval - now)), interval
end

-- stopped returns for how many milliseconds a room is paused or over its pace.
local function stopped(room)
  local now, left = room.call.now, 0
  if room.paused then return room.call.ttl end
  if room.resumes > now then return room.resumes - now end
  if room.rpm == 0 and room.tpm == 0 then return 0 end
  local used = redis.call('HMGET', room.pace, 'requests', 'tokens')
  if room.rpm > 0 then left = pace_left(room.rpm, 1, tonumber(used[1] or '0'), now) end
  if room.tpm > 0 then left = math.max(left, (pace_left(room.tpm, 1000, tonumber(used[2] or '0'), now))) end
  return left
end

-- held_back returns for how many milliseconds a room with free slots grants none: it is stopped, or its provider has no free
-- slot. Then it is set aside.
local function held_back(room)
  local call, left = room.call, stopped(room)
  if left == 0 and room.provider then
    redis.call('ZREMRANGEBYSCORE', room.provider, '-inf', whole(call.now))
    if redis.call('ZCARD', room.provider) >= room.provider_cap then
      set_aside(call, room.provider, room.model, ASIDE_TTL)
      local first = redis.call('ZRANGE', room.provider, 0, 0, 'WITHSCORES')
      left = first[2] and math.max(1, tonumber(first[2]) - call.now) or call.ttl
    end
  end
  return left
end

-- charge_pace records a grant, whose cost is in thousands of tokens.
local function charge_pace(room, cost)
  local now = room.call.now
  for field, c in pairs({ requests = { room.rpm, 1, 1 }, tokens = { room.tpm, 1000, cost * 1000 } }) do
    if c[1] > 0 then
      local _, interval = pace_left(c[1], c[2], 0, now)
      local used_up = math.max(now, tonumber(redis.call('HGET', room.pace, field) or '0')) + c[3] * interval
      redis.call('HSET', room.pace, field, precise(used_up))
      redis.call('PEXPIRE', room.pace, whole(math.max(120000, used_up - now)))
    end
  end
end

-- gap_of returns the smoothed time in ms between two grants to waiters; -1 when it is not known. It is stored for one slot, so
-- that it follows a change of the cap. While all slots are in use, a call lasts at least as long as the last grant is past.
local function gap_of(room)
  local v = redis.call('HMGET', room.state, 'interval', 'taken')
  if not v[1] then return -1 end
  local interval = tonumber(v[1])
  if v[2] and redis.call('ZCARD', room.holders) >= room.cap then interval = math.max(interval, room.call.now - tonumber(v[2])) end
  return interval / math.max(1, room.cap)
end

-- measure_gap updates the smoothed time between two grants to waiters, without that of a pause.
local function measure_gap(room)
  local now, v = room.call.now, redis.call('HMGET', room.state, 'granted', 'interval')
  redis.call('HSET', room.state, 'granted', whole(now), 'taken', whole(now))
  if not v[1] then return end
  local passed = math.max(0, now - math.max(tonumber(v[1]), room.resumes)) * math.max(1, room.cap)
  local interval = v[2] and tonumber(v[2]) or passed
  redis.call('HSET', room.state, 'interval', precise(interval + (passed - interval) / GAP_WEIGHT))
end

-- notify publishes a grant to the lease's process. The message has the lease's ticket, so that a late claim keeps it, and the
-- epoch of the guard, so that the grant of a master that was replaced without noticing starts nothing.
local function notify(room, lease, process, ticket, expiry)
  local call = room.call
  call.epoch = call.epoch or redis.call('HGET', call.guard, 'epoch') or '0'
  redis.call('PUBLISH', call.prefix .. 'wake:' .. process,
    table.concat({ ticket, whole(expiry), call.epoch, room.model, lease }, '\n'))
end

-- advance continues the order after take_first.
local function advance(room, flow, member)
  local node = flow.parent
  reorder(room, flow, member)
  while node.parent do
    if is_listed(node) then list(node, nil, tag_of(room, node, 0)) end
    node = node.parent
  end
  uncount_waiting(room, flow)
end

-- include model_waiters

-- served ends that nodes of a room were set aside because of a level: if they have to be again, they are behind the others. So are those
-- where waiters may be set aside, too.
local function served(room, key, path)
  local member = room.model .. ' ' .. path
  if redis.call('EXISTS', waiters_of(room).waiting) == 0 then
    redis.call('ZREM', key .. ':aside', member)
  else
    redis.call('ZADD', key .. ':aside', 'XX', whole(room.call.now), member)
  end
end

-- grant_first gives a slot to the first lease of a flow, which has `member` in the order.
local function grant_first(room, flow, lease, member)
  local call, mine = room.call, room.mine
  local _, process, cost = flow_of(room, lease)
  local ticket = take_first(room, flow, lease, member, cost)
  local expiry = call.now + (mine[lease] and call.ttl or call.grant)
  hold(room, lease, flow, expiry)
  charge_pace(room, cost)
  measure_gap(room)
  for _, node in ipairs(flow.limited) do served(room, slots_key(call, node.name), node.path) end
  if room.provider then redis.call('ZREM', room.provider .. ':aside', room.model) end
  advance(room, flow, member)
  room.granted[flow.path] = true
  if not mine[lease] then notify(room, lease, process, ticket, expiry) end
end

-- grant_free_slots grants free slots in the fair order. A lease of room.mine belongs to the caller and holds immediately. Any
-- other is granted for a short time, and its process is notified.
local function grant_free_slots(room)
  local free = room.cap - redis.call('ZCARD', room.holders)
  if free <= 0 or redis.call('ZCARD', room.order) == 0 then return end
  if grace_of(room.call) > 0 then return end
  for _ = 1, MAX_STEPS do
    if free <= 0 or held_back(room) > 0 then return end
    local flow, member = first_flow(room)
    if not flow then return end
    local lease = head_of(flow)
    if tonumber(redis.call('ZSCORE', room.waiting, lease) or '0') <= room.call.now then
      leave(room, lease)
    elseif not set_full_aside(room, flow, member) then
      grant_first(room, flow, lease, member)
      free = free - 1
    end
  end
  room.unfinished = true
end

-- return_aside returns a path that was set aside in a room to its order, and that of its waiters. It reports whether leases wait below it.
local function return_aside(room, path)
  local found, waiters = return_node(room, node_at(room, path)), waiters_of(room)
  if redis.call('EXISTS', waiters.waiting) == 1 then found = return_node(waiters, node_at(waiters, path)) or found end
  return found
end

-- serve_room grants the free slots of a room and promotes its waiters.
local function serve_room(room)
  if not room.vacant then grant_free_slots(room) end
  promote(room)
end

-- serve is the end of each call that changes who holds or waits. Where slots have become free in the call, it returns what was set aside because of
-- their levels and providers, in all rooms, and serves these in the order of their wait.
local function serve(room)
  local call, rooms, known = room.call, {}, { [room.model] = room }
  local freed, at = call.freed, 0
  if not freed[1] then return serve_room(room) end
  while at < #freed do -- expired slots of other rooms add to it
    at = at + 1
    local f = freed[at]
    f.paths = {}
    for _, member in ipairs(redis.call('ZRANGE', f.key .. ':aside', 0, MAX_ROOMS - 1)) do
      local model, path = member, nil
      if f.level then model, path = string.match(member, '^(.*) ([^ ]+)$') end
      if known[model] == nil then
        known[model] = room_of(call, model) or false
        if known[model] then purge(known[model]) end
      end
      local other = known[model]
      if not other or path and not return_aside(other, path) then
        redis.call('ZREM', f.key .. ':aside', member)
      else
        if path then table.insert(f.paths, { room = other, path = path }) end
        if not other.listed and #rooms < MAX_ROOMS then
          other.listed = true
          table.insert(rooms, other)
        end
      end
    end
  end
  if not room.listed then table.insert(rooms, room) end
  for _, r in ipairs(rooms) do
    serve_room(r)
    if r.provider and redis.call('ZCARD', r.order) == 0 then redis.call('ZREM', r.provider .. ':aside', r.model) end
  end
  for _, f in ipairs(freed) do
    local first = f.paths[1]
    if first and #rooms > 1 and not is_full(first.room, node_at(first.room, first.path)) then
      for _, p in ipairs(f.paths) do served(p.room, f.key, p.path) end
    end
  end
  call.freed = {}
end

-- revoke_unclaimed takes a granted slot from a lease that has not used it, while leases may have been lost: a master that was
-- replaced without noticing may have granted the slot in place of a lease that was renewed elsewhere.
local function revoke_unclaimed(room, lease, flow)
  if redis.call('ZSCORE', room.holders, lease) and grace_of(room.call) > 0 then unhold(room, lease, flow) end
end

-- take_free_slot gives a slot to a lease where none waits, and reports whether it did. No lease is behind it, so it costs nothing.
local function take_free_slot(room, lease)
  if redis.call('ZCARD', room.waiting) > 0 or redis.call('ZCARD', room.holders) >= room.cap then return false end
  local flow, _, cost = flow_of(room, lease)
  if full_on(room, flow) or held_back(room) > 0 or grace_of(room.call) > 0 then return false end
  hold(room, lease, flow, room.call.now + room.call.ttl)
  redis.call('HSET', room.state, 'taken', whole(room.call.now))
  charge_pace(room, cost)
  room.granted[flow.path], room.vacant = true, true
  return true
end

-- next_expiry returns in how many milliseconds a slot may become free without a notification; 0 when no lease waits.
local function next_expiry(room)
  local call = room.call
  if redis.call('ZCARD', room.waiting) == 0 then return 0 end
  if room.unfinished then return 1 end
  if redis.call('ZCARD', room.holders) < room.cap then
    if grace_of(call) > 0 then return grace_of(call) end
    local left = held_back(room)
    return left > 0 and math.max(1, left) or call.levels_next or call.ttl
  end
  local first = redis.call('ZRANGE', room.holders, 0, 0, 'WITHSCORES')
  if not first[2] then return call.ttl end
  return math.max(1, tonumber(first[2]) - call.now)
end
