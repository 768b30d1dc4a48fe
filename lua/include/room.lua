-- A model's slots and the room in which leases wait for one, shared by the scripts of model slots. A pool of nodes has such a room, too:
-- see include handover. The ids of leases are {process}/{path}/{cost}/{needs}/{rest}; see Lease in slot.go. A path is a queue and the levels
-- below it, such as q_paid_stream|team:a|user:b; the order is a tree of paths, and each lease waits at a leaf, its flow. A slot is one of
-- an upstream, see include upstream. Every key begins with the prefix that keys.go passes:
--   model:{m}:holders         zset  lease -> expiry in Redis milliseconds; a grant not claimed yet has a short one
--   model:{m}:holders:{u}     zset  the same of the leases on the slots of one upstream
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
--   model:{m}:limits          hash  base, revision: the limits that processes pass; paused, reason, resumed: of operators; cap, rpm, tpm:
--                                   of operators, for a model with one upstream; and for each upstream
--                                   {field}:{u}: cap, rpm, tpm, paused, reason, resumed: of operators, see set_model_limits;
--                                   until, cause: a pause with an end; probe: 1 while one call at a time tries an upstream
--                                   that failed; ramp: when its slots began to double after a pause; learned, lowered, good,
--                                   refused: its automatic cap; see report_call
--   model:{m}:pace:{u}        hash  requests, tokens: when the granted ones are used up
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

-- MAX_SKIPPED is how many flows, and how many leases of a flow, are skipped because no free upstream can take them.
local MAX_SKIPPED = 16

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

-- set_aside remembers what waits for a slot of a level or a provider.
local function set_aside(call, key, member, ttl)
  redis.call('ZADD', key .. ':aside', 'NX', whole(call.now), member)
  if redis.call('PTTL', key .. ':aside') < ttl then redis.call('PEXPIRE', key .. ':aside', ttl) end
end

-- include upstream

-- room_of returns a model's room with its current limits; nil when no process has passed any. Those that are passed have to be readable.
local function room_of(call, model, base)
  local stem = call.prefix .. 'model:' .. model .. ':'
  local l = limits_in_use(call, stem .. 'limits', base)
  if not l then return nil end
  local room = {
    call = call, model = model, stem = stem, nodes = {}, levels = {}, queues = l.queues, mine = {}, granted = {},
    holders = stem .. 'holders', waiting = stem .. 'waiting', order = stem .. 'order:', users = stem .. 'users', state = stem .. 'state',
    paused = redis.call('HGET', stem .. 'limits', 'paused') == '1', user_cap = l.userCap, resumes = nil,
    upstreams = upstreams_of(call, stem, l),
  }
  room.cap = cap_of(room.upstreams)
  for _, u in ipairs(room.upstreams) do
    if room.paused then u.paused = true end
    room.resumes = math.min(room.resumes or u.resumes, u.resumes)
  end
  room.resumes = room.resumes or 0
  return room
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

-- try_again returns what was set aside on the path of a flow with leases, whose first one is `member` in the order.
local function try_again(room, flow, member)
  if not is_listed(flow, member) then enter(room, flow, member) end
  for i = #flow.limited, 1, -1 do
    if flow.limited[i] ~= flow then return_node(room, flow.limited[i]) end
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

-- hold gives a lease of a flow a slot of an upstream until expiry, or prolongs it.
local function hold(room, lease, flow, u, expiry)
  local call = room.call
  expiry = whole(expiry)
  redis.call('ZADD', room.holders, expiry, lease)
  if redis.call('ZADD', u.holders, expiry, lease) == 1 and u.used then u.used, u.opens = u.used + 1, nil end
  redis.call('PEXPIRE', u.holders, call.ttl) -- what is left of an upstream that was removed
  for _, node in ipairs(flow.limited) do
    call.used[node.name] = in_use(call, node.name) + redis.call('ZADD', slots_key(call, node.name), expiry, lease)
    redis.call('PEXPIRE', slots_key(call, node.name), call.ttl)
  end
  if u.provider then
    redis.call('ZADD', u.provider, expiry, lease)
    redis.call('PEXPIRE', u.provider, call.ttl)
  end
end

-- held_by returns the upstream whose slot a lease has; nil where none is known.
local function held_by(room, lease)
  if not redis.call('ZSCORE', room.holders, lease) then return nil end
  for _, u in ipairs(room.upstreams) do
    if redis.call('ZSCORE', u.holders, lease) then return u end
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
  for _, u in ipairs(room.upstreams) do
    if redis.call('ZREM', u.holders, lease) == 1 then
      u.used, u.opens = nil, nil
      if u.provider then free(call, u.provider, lease) end
      break
    end
  end
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
local function notify(room, lease, u, process, ticket, expiry)
  local call = room.call
  call.epoch = call.epoch or redis.call('HGET', call.guard, 'epoch') or '0'
  redis.call('PUBLISH', call.prefix .. 'wake:' .. process,
    table.concat({ ticket, whole(expiry), call.epoch, room.model, u.name, lease }, '\n'))
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

-- grant gives a slot of an upstream to a lease of a flow, whose first lease is `member` in the order.
local function grant(room, flow, lease, u, member)
  local call, mine = room.call, room.mine
  local _, process, cost = flow_of(room, lease)
  local ticket = take_first(room, flow, lease, member, cost)
  local expiry = call.now + (mine[lease] and call.ttl or call.grant)
  hold(room, lease, flow, u, expiry)
  charge_pace(call, u, cost)
  measure_gap(room)
  for _, node in ipairs(flow.limited) do served(room, slots_key(call, node.name), node.path) end
  if u.provider then redis.call('ZREM', u.provider .. ':aside', room.model) end
  advance(room, flow, member)
  u.opens, room.granted[flow.path] = nil, true
  if mine[lease] then
    mine[lease] = u
  else
    notify(room, lease, u, process, ticket, expiry)
  end
end

-- next_of returns the first lease of a flow that an upstream can take now, and the upstream: one that cannot be served yet does not keep
-- back those behind it. It checks a limited number.
local function next_of(room, flow, first)
  local u = choose(room, first)
  if u or not room.upstreams[2] then return first, u end
  for _, lease in ipairs(redis.call('ZRANGE', flow.leases, 1, MAX_SKIPPED)) do
    u = tonumber(redis.call('ZSCORE', room.waiting, lease) or '0') > room.call.now and choose(room, lease)
    if u then return lease, u end
  end
end

-- skip takes a flow out of the order for the time of a search, as no upstream can take its leases. return_skipped puts it back.
local function skip(flow, member)
  local s = { flow = flow, member = member, tags = tags_of(flow, member) }
  unlist(flow, member)
  unlist_empty(flow.parent)
  return s
end

local function return_skipped(s)
  local node, member = s.flow, s.member
  while node.parent and not is_listed(node, member) do
    list(node, member, math.max(s.tags[node.depth], finish_of(node))) -- what is above may have been served meanwhile
    member, node = nil, node.parent
  end
end

-- grant_free_slots grants free slots in the fair order. A lease of room.mine belongs to the caller and holds immediately. Any
-- other is granted for a short time, and its process is notified. Leases that no free upstream can take are skipped, but not all.
local function grant_free_slots(room)
  if redis.call('ZCARD', room.order) == 0 or not is_open(room) or grace_of(room.call) > 0 then return end
  local skipped, done = {}, false
  for _ = 1, MAX_STEPS do
    local flow, member = first_flow(room)
    done = not flow or not is_open(room)
    if done then break end
    local first = head_of(flow)
    if tonumber(redis.call('ZSCORE', room.waiting, first) or '0') <= room.call.now then
      leave(room, first)
    elseif not set_full_aside(room, flow, member) then
      local lease, u = next_of(room, flow, first)
      done = not u and #skipped == MAX_SKIPPED
      if done then break end
      if u then
        grant(room, flow, lease, u, member)
      else
        table.insert(skipped, skip(flow, member))
      end
    end
  end
  for _, s in ipairs(skipped) do return_skipped(s) end
  room.unfinished = not done
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
    for _, u in ipairs(r.upstreams) do
      if u.provider and redis.call('ZCARD', r.order) == 0 then redis.call('ZREM', u.provider .. ':aside', r.model) end
    end
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

-- take_free_slot gives a slot to a lease where none waits, and returns its upstream; nil where it gets none. No lease is behind it, so it
-- costs nothing.
local function take_free_slot(room, lease)
  if redis.call('ZCARD', room.waiting) > 0 then return nil end
  local u = choose(room, lease)
  if not u then return nil end
  local flow, _, cost = flow_of(room, lease)
  if full_on(room, flow) or grace_of(room.call) > 0 then return nil end
  hold(room, lease, flow, u, room.call.now + room.call.ttl)
  redis.call('HSET', room.state, 'taken', whole(room.call.now))
  charge_pace(room.call, u, cost)
  u.opens, room.granted[flow.path], room.vacant = nil, true, true
  return u
end

-- next_expiry returns in how many milliseconds a slot may become free without a notification; 0 when no lease waits.
local function next_expiry(room)
  local call = room.call
  if redis.call('ZCARD', room.waiting) == 0 then return 0 end
  if room.unfinished then return 1 end
  local open, left = false, call.ttl
  for _, u in ipairs(room.upstreams) do
    local opens = opens_in(room, u)
    open = open or opens == 0
    if opens > 0 then left = math.min(left, opens) end
  end
  if open and grace_of(call) > 0 then return grace_of(call) end
  return math.max(1, open and math.min(left, call.levels_next or left) or left)
end
