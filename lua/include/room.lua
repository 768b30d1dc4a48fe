-- A model's slots and the room in which leases wait for one, shared by the scripts of model slots. A pool of nodes has such a room, too:
-- see include handover. The ids of leases are
-- {process}/{queue}/{user}/{cost}/{rest}; see Lease in slot.go. Every key begins with the prefix that keys.go passes:
--   model:{m}:holders         zset  lease -> expiry in Redis milliseconds; a grant not claimed yet has a short one
--   model:{m}:waiting         zset  waiting lease -> expiry
--   model:{m}:flow:{q}/{u}    zset  waiting lease of a user in a queue -> order of arrival
--   model:{m}:order           zset  queue with users in the next key -> tag
--   model:{m}:order:{q}       zset  order of a user's first lease and the user -> tag; without users at their limit
--   model:{m}:finish:{q}      zset  user -> tag at which the user's last grant ends
--   model:{m}:users           zset  {q}/{u} -> number of waiting leases
--   model:{m}:state           hash  arrivals: the last order; V, V:{q}: the virtual times; F:{q}: as finish, of a queue;
--                                   n:{q}: number of waiting leases; taken: when the last slot was granted; granted: when
--                                   the last waiter got one; turn: ms from one such grant to the next, times the cap,
--                                   smoothed
--   model:{m}:limits          hash  base: the limits that processes pass; cap, rpm, tpm, paused, reason, resumed: those of
--                                   operators, see set_model_limits;
--                                   until, cause: a pause with an end; probe: 1 while one call at a time tries a
--                                   model that failed, see report_call
--   model:{m}:pace            hash  requests, tokens: when the granted ones are used up
--   slots:user:{u}            zset  lease of a user, of all models -> expiry
--   slots:user:{u}:aside      zset  model in which the user was set aside -> since when
--   slots:provider:{p}        zset  lease of a provider, of all its models -> expiry
--   slots:provider:{p}:aside  zset  model that waits for a slot of its provider -> since when
--   lease:guard               hash  see include guard
--
-- The order is start-time fair queueing (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996) on two levels: queues by their
-- weights, users within a queue. Each user's leases in a queue are a flow, first in, first out. Only the first of a flow has
-- a tag, the maximum of the virtual time and the end of the flow's last grant. The lowest tag is served first and becomes
-- the virtual time; a grant ends cost / weight later. A user without waiting leases whose last grant has ended for longer returns
-- up to CREDIT before the virtual time, and is therefore served before users who always wait: it has not used its share.

-- include clock
-- include guard

-- WEIGHT is the share of each queue in a model that has not enough slots; that of any other queue is 1.
local WEIGHT = {
  q_paid_stream = 8, q_paid_batch = 4, q_paid_vision = 4, q_free_stream = 2, q_free_batch = 1, q_free_vision = 1,
}

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

-- precise formats a tag.
local function precise(n) return string.format('%.17g', n) end

-- call_of returns what the parts of one call share.
local function call_of(prefix, guard, ttl, grant, known)
  return {
    prefix = prefix, guard = guard, ttl = ttl, grant = grant, known = known, now = clock(), used = {}, users_next = nil,
    freed = {}, -- users and providers with slots that became free, see unhold
    promotions = {}, -- model and waiter of each workflow that the caller has to signal
  }
end

-- grace_of returns for how many milliseconds nothing may be granted.
local function grace_of(call)
  if not call.grace then call.grace = grace(call.guard, call.now, call.ttl, call.known) end
  return call.grace
end

-- limits_of parses the limits that a process passes; nil when they are unreadable. 0 is no limit, except for cap.
local function limits_of(base)
  local cap, user_cap, rpm, tpm, provider_cap, provider = string.match(base, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not cap then return nil end
  return {
    cap = tonumber(cap), user_cap = tonumber(user_cap), rpm = tonumber(rpm), tpm = tonumber(tpm),
    provider_cap = tonumber(provider_cap), provider = provider,
  }
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
    call = call, model = model, stem = stem, flows = {}, mine = {}, granted = {},
    holders = stem .. 'holders', waiting = stem .. 'waiting', order = stem .. 'order', users = stem .. 'users',
    state = stem .. 'state', pace = stem .. 'pace',
    cap = math.min(tonumber(v[2] or l.cap), v[7] == '1' and 1 or math.huge), rpm = tonumber(v[3] or l.rpm), tpm = tonumber(v[4] or l.tpm), user_cap = l.user_cap,
    paused = v[5] == '1', resumes = tonumber(v[6] or '0'), probing = v[7] == '1',
    provider = l.provider_cap > 0 and call.prefix .. 'slots:provider:' .. l.provider, provider_cap = l.provider_cap,
  }
end

-- is_lease reports whether a lease id has all its parts.
local function is_lease(lease)
  local cost = string.match(lease, '^[^/]+/[^/]+/[^/]+/([^/]+)/')
  return cost and tonumber(cost) ~= nil
end

local function flow_at(room, queue, user)
  local name = queue .. '/' .. user
  if not room.flows[name] then
    local weight = WEIGHT[queue] or 1
    room.flows[name] = {
      name = name, queue = queue, user = user, weight = weight, key = room.stem .. 'flow:' .. name,
      order = room.stem .. 'order:' .. queue, finish = room.stem .. 'finish:' .. queue,
      member = string.format('%03d', 999 - weight) .. queue, -- of the queue; equal tags are served by weight
    }
  end
  return room.flows[name]
end

-- flow_of returns the flow of a lease, and the lease's process and cost.
local function flow_of(room, lease)
  local process, queue, user, cost = string.match(lease, '^([^/]+)/([^/]+)/([^/]+)/([^/]+)/')
  return flow_at(room, queue, user), process, tonumber(cost)
end

-- head_of returns the first lease of a flow, its member of the order, and its number: equal tags are served by arrival.
local function head_of(flow)
  local first = redis.call('ZRANGE', flow.key, 0, 0, 'WITHSCORES')
  if not first[1] then return nil end
  local number = tonumber(first[2])
  return first[1], string.format('%016.0f', number) .. flow.user, number
end

-- read_state returns a number of the room's state. A virtual time that Redis does not have begins at its clock: it is then
-- later than the tags of waiters that return after a loss of data, because a room grants less than 1,000 costs per second.
local function read_state(room, field)
  local v = tonumber(redis.call('HGET', room.state, field) or nil)
  if not v and string.sub(field, 1, 1) == 'V' then
    v = room.call.now
    redis.call('HSET', room.state, field, whole(v))
  end
  return v or 0
end

local function user_key(call, user) return call.prefix .. 'slots:user:' .. user end

-- in_use returns how many slots a user has, of all models.
local function in_use(call, user)
  if not call.used[user] then
    local key = user_key(call, user)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(call.now))
    call.used[user] = redis.call('ZCARD', key)
  end
  return call.used[user]
end

local ahead_of, waiters_of -- see include model_waiters

-- is_full reports whether a flow's user is at the limit. When the slots of that user expire is then a time to try again. Waiters
-- may be ahead so far that the next call is there when one of the user's ends, except with room.below.
local function is_full(room, flow)
  local call, user, limit = room.call, flow.user, room.user_cap
  if limit == 0 then return false end
  local used = in_use(call, user)
  if room.promoted then
    used, limit = used + ahead_of(room, flow), (room.below and 1 or 2) * limit
  end
  if used < limit then return false end
  local first = redis.call('ZRANGE', user_key(call, user), 0, 0, 'WITHSCORES')
  if first[2] then call.users_next = math.min(call.users_next or call.ttl, math.max(1, tonumber(first[2]) - call.now)) end
  return true
end

local function set_aside(call, key, model, ttl)
  redis.call('ZADD', key .. ':aside', 'NX', whole(call.now), model)
  if redis.call('PTTL', key .. ':aside') < ttl then redis.call('PEXPIRE', key .. ':aside', ttl) end
end

-- order_of returns the number of a new lease in the order of arrival. Orders never decrease, even in a Redis that lost its
-- data, because they follow its clock in microseconds.
local function order_of(room)
  local t, last = redis.call('TIME'), read_state(room, 'arrivals')
  local order = math.max(last + 1, tonumber(t[1]) * 1000000 + tonumber(t[2]))
  redis.call('HSET', room.state, 'arrivals', whole(order))
  return order
end

-- ticket_of formats what a lease has to pass to return to its position: its order, and the tags of its queue and user.
local function ticket_of(order, queue_tag, user_tag) return whole(order) .. '/' .. precise(queue_tag) .. '/' .. precise(user_tag) end

-- parse_ticket returns the parts of a ticket, zeros for a new lease; nil when it is unreadable.
local function parse_ticket(ticket)
  if ticket == '' then return 0, 0, 0 end
  local order, queue_tag, user_tag = string.match(ticket, '^(%d+)/([%d.e+]+)/([%d.e+]+)$')
  return tonumber(order or nil), tonumber(queue_tag or nil), tonumber(user_tag or nil)
end

-- tag_of returns the tag of a flow's next lease: so much credit before the virtual time, but not before the end of its last grant.
local function tag_of(room, flow, credit)
  return math.max(read_state(room, 'V:' .. flow.queue) - credit, tonumber(redis.call('ZSCORE', flow.finish, flow.user) or '0'))
end

-- enter puts a flow with leases into the order, unless its user is at the limit. A flow that returns with tags has these.
local function enter(room, flow, member, queue_tag, user_tag)
  if is_full(room, flow) then
    set_aside(room.call, user_key(room.call, flow.user), room.model, room.promoted and ENTRY_ASIDE_TTL or ASIDE_TTL)
    if room.aside then redis.call('ZADD', room.aside, whole(room.call.now), flow.name) end
    return
  end
  if room.aside then redis.call('ZREM', room.aside, flow.name) end
  if not user_tag or user_tag == 0 then
    user_tag = tag_of(room, flow, 0)
  end
  redis.call('ZADD', flow.order, precise(user_tag), member)
  local tag = redis.call('ZSCORE', room.order, flow.member)
  if queue_tag and queue_tag > 0 then
    if not tag or queue_tag < tonumber(tag) then redis.call('ZADD', room.order, precise(queue_tag), flow.member) end
  elseif not tag then
    redis.call('ZADD', room.order, precise(math.max(read_state(room, 'V'), read_state(room, 'F:' .. flow.queue))), flow.member)
  end
end

-- reorder updates the order after a change of a flow's first lease, which was `member` there.
local function reorder(room, flow, member, queue_tag, user_tag)
  if member then redis.call('ZREM', flow.order, member) end
  local lease, first = head_of(flow)
  if lease then
    enter(room, flow, first, queue_tag, user_tag)
  elseif room.aside then
    redis.call('ZREM', room.aside, flow.name)
  end
  if redis.call('ZCARD', flow.order) == 0 then redis.call('ZREM', room.order, flow.member) end
end

-- return_flow puts a flow that was set aside back into the order where its user is below the limit. It reports whether it has leases.
local function return_flow(room, flow)
  local lease, member = head_of(flow)
  if lease and not redis.call('ZSCORE', flow.order, member) then
    enter(room, flow, member)
  elseif room.aside then
    redis.call('ZREM', room.aside, flow.name)
  end
  return lease ~= nil
end

-- uncount updates the numbers of waiters after one has left the queue. A queue or a room without any forgets its flows: none
-- of them has an advantage or a debt that lasts.
local function uncount(room, flow)
  if tonumber(redis.call('ZINCRBY', room.users, -1, flow.name)) <= 0 then redis.call('ZREM', room.users, flow.name) end
  if redis.call('HINCRBY', room.state, 'n:' .. flow.queue, -1) <= 0 then
    local last = redis.call('ZREVRANGE', flow.finish, 0, 0, 'WITHSCORES')
    local time = math.max(read_state(room, 'V:' .. flow.queue), tonumber(last[2] or '0'))
    redis.call('HSET', room.state, 'n:' .. flow.queue, 0, 'V:' .. flow.queue, precise(time))
    redis.call('UNLINK', flow.finish)
  end
  if redis.call('ZCARD', room.waiting) == 0 then
    local time, all = read_state(room, 'V'), redis.call('HGETALL', room.state)
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 2) == 'F:' then time = math.max(time, tonumber(all[i + 1])) end
    end
    redis.call('HSET', room.state, 'V', precise(time))
    redis.call('HDEL', room.state, 'granted') -- the time until the next waiter arrives is not one between grants
  end
end

-- leave removes a waiting lease. It costs its flow nothing: the next one has its tag. The next waiter of its user may follow.
local function leave(room, lease)
  local flow = flow_of(room, lease)
  local first, member = head_of(flow)
  local user_tag = first == lease and redis.call('ZSCORE', flow.order, member)
  redis.call('ZREM', room.waiting, lease)
  if redis.call('ZREM', flow.key, lease) == 0 then return end
  if first == lease then reorder(room, flow, member, nil, tonumber(user_tag or nil)) end
  uncount(room, flow)
  if room.holders then
    local waiters = waiters_of(room)
    return_flow(waiters, flow_at(waiters, flow.queue, flow.user))
  end
end

-- hold gives a lease a slot until expiry, or prolongs it.
local function hold(room, lease, user, expiry)
  local call = room.call
  expiry = whole(expiry)
  redis.call('ZADD', room.holders, expiry, lease)
  if room.user_cap > 0 then
    in_use(call, user)
    call.used[user] = call.used[user] + redis.call('ZADD', user_key(call, user), expiry, lease)
    redis.call('PEXPIRE', user_key(call, user), call.ttl)
  end
  if room.provider then
    redis.call('ZADD', room.provider, expiry, lease)
    redis.call('PEXPIRE', room.provider, call.ttl)
  end
end

-- free removes a lease from the slots of its user or provider.
local function free(call, key, lease, user)
  redis.call('ZREM', key, lease)
  if not call.freed[key] then
    call.freed[key] = true
    table.insert(call.freed, { key = key, user = user })
  end
end

-- unhold takes its slot from a lease, whatever the reason, and reports whether it had one. What was set aside because of its user or
-- provider returns with serve.
local function unhold(room, lease, user)
  local call = room.call
  if redis.call('ZREM', room.holders, lease) == 0 then return false end
  if room.user_cap > 0 then
    free(call, user_key(call, user), lease, user)
    call.used[user] = nil
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
  for _, lease in ipairs(dead) do unhold(room, lease, flow_of(room, lease).user) end
  purge_waiting(room)
end

-- first_flow returns the flow that is served next, and its member of the order; nil where none is in the order.
local function first_flow(room)
  local queue = redis.call('ZRANGE', room.order, 0, 0)[1]
  if not queue then return nil end
  queue = string.sub(queue, 4)
  local member = redis.call('ZRANGE', room.stem .. 'order:' .. queue, 0, 0)[1]
  return flow_at(room, queue, string.sub(member, 17)), member
end

-- waiter_ttl returns how long a waiter lasts without renewal: shorter than a lease by one grant, so that grants to the
-- waiters of a dead process do not hold back its slots beyond their expiry.
local function waiter_ttl(call) return math.max(call.ttl - call.grant, math.ceil(call.ttl / 2)) end

-- join adds a lease to the room, or keeps its position there. A flow that was set aside returns if its user is below the limit.
local function join(room, lease, ticket)
  local flow = flow_of(room, lease)
  local first, member, number = head_of(flow)
  if redis.call('ZADD', room.waiting, whole(room.call.now + (room.lasts or waiter_ttl(room.call))), lease) == 0 then
    if first and not redis.call('ZSCORE', flow.order, member) then enter(room, flow, member) end
    return
  end
  local order, queue_tag, user_tag = parse_ticket(ticket)
  if order == 0 then order = order_of(room) end
  redis.call('ZADD', flow.key, whole(order), lease)
  redis.call('ZINCRBY', room.users, 1, flow.name)
  redis.call('HINCRBY', room.state, 'n:' .. flow.queue, 1)
  if not first and user_tag == 0 then user_tag = tag_of(room, flow, CREDIT) end
  if not first or order <= number then
    reorder(room, flow, member, queue_tag, user_tag)
  elseif not redis.call('ZSCORE', flow.order, member) then
    enter(room, flow, member)
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

-- charge advances the virtual times by the grant of a flow's first lease, and the end of the flow's last grant.
local function charge(room, flow, queue_tag, user_tag, cost)
  local ends, time = user_tag + cost, math.max(read_state(room, 'V:' .. flow.queue), user_tag)
  redis.call('HSET', room.state, 'V', precise(math.max(read_state(room, 'V'), queue_tag)), 'F:' .. flow.queue, precise(queue_tag + cost / flow.weight), 'V:' .. flow.queue, precise(time))
  redis.call('ZADD', flow.finish, precise(ends), flow.user)
  -- The end of a grant that is this early is that of a new user.
  local past = redis.call('ZRANGEBYSCORE', flow.finish, '-inf', precise(time - CREDIT), 'LIMIT', 0, 4)
  if past[1] then redis.call('ZREM', flow.finish, unpack(past)) end
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

-- take_first removes the first lease of a flow, which has `member` in the order, charges the flow, and returns the ticket that the
-- lease had. What the lease gets is recorded before advance.
local function take_first(room, flow, lease, member, cost)
  local queue_tag, user_tag = tonumber(redis.call('ZSCORE', room.order, flow.member)), tonumber(redis.call('ZSCORE', flow.order, member))
  local ticket = ticket_of(tonumber(redis.call('ZSCORE', flow.key, lease)), queue_tag, user_tag)
  redis.call('ZREM', flow.key, lease)
  redis.call('ZREM', room.waiting, lease)
  charge(room, flow, queue_tag, user_tag, cost)
  return ticket
end

-- advance continues the order after take_first.
local function advance(room, flow, member)
  redis.call('ZREM', room.order, flow.member)
  reorder(room, flow, member)
  local rest = redis.call('ZCARD', flow.order)
  if rest > 0 then
    redis.call('ZADD', room.order, precise(math.max(read_state(room, 'V'), read_state(room, 'F:' .. flow.queue))), flow.member)
  end
  uncount(room, flow)
end

-- include model_waiters

-- served ends that a room is set aside: if it has to be again, it is behind the others. So it is where waiters may be set aside, too.
local function served(room, key)
  if redis.call('EXISTS', waiters_of(room).waiting) == 0 then
    redis.call('ZREM', key .. ':aside', room.model)
  else
    redis.call('ZADD', key .. ':aside', 'XX', whole(room.call.now), room.model)
  end
end

-- grant_first gives a slot to the first lease of a flow, which has `member` in the order.
local function grant_first(room, flow, lease, member)
  local call, mine = room.call, room.mine
  local _, process, cost = flow_of(room, lease)
  local ticket = take_first(room, flow, lease, member, cost)
  local expiry = call.now + (mine[lease] and call.ttl or call.grant)
  hold(room, lease, flow.user, expiry)
  charge_pace(room, cost)
  measure_gap(room)
  if room.user_cap > 0 then served(room, user_key(call, flow.user)) end
  if room.provider then redis.call('ZREM', room.provider .. ':aside', room.model) end
  advance(room, flow, member)
  room.granted[flow.name] = true
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
    elseif is_full(room, flow) then
      reorder(room, flow, member) -- sets it aside
    else
      grant_first(room, flow, lease, member)
      free = free - 1
    end
  end
  room.unfinished = true
end

-- return_user puts a user's flows back into the order of a room in which they were set aside. It reports whether any wait.
local function return_user(room, user)
  local found, waiters = false, waiters_of(room)
  local some = redis.call('EXISTS', waiters.waiting) == 1
  for queue in pairs(WEIGHT) do
    found = return_flow(room, flow_at(room, queue, user)) or found
    found = some and return_flow(waiters, flow_at(waiters, queue, user)) or found
  end
  return found
end

-- serve_room grants the free slots of a room and promotes its waiters.
local function serve_room(room)
  if not room.vacant then grant_free_slots(room) end
  promote(room)
end

-- serve is the end of each call that changes who holds or waits. Where slots have become free in the call, it returns what was set aside because of
-- their users and providers, in all rooms, and serves these in the order of their wait.
local function serve(room)
  local call, rooms, known = room.call, {}, { [room.model] = room }
  local freed, at = call.freed, 0
  if not freed[1] then return serve_room(room) end
  while at < #freed do -- expired slots of other rooms add to it
    at = at + 1
    local key, user = freed[at].key, freed[at].user
    for _, model in ipairs(redis.call('ZRANGE', key .. ':aside', 0, MAX_ROOMS - 1)) do
      if known[model] == nil then
        known[model] = room_of(call, model) or false
        if known[model] then purge(known[model]) end
      end
      local other = known[model]
      if not other or user and not return_user(other, user) then
        redis.call('ZREM', key .. ':aside', model)
      elseif not other.listed and #rooms < MAX_ROOMS then
        other.listed = true
        table.insert(rooms, other)
      end
    end
  end
  if not room.listed then table.insert(rooms, room) end
  for _, r in ipairs(rooms) do
    serve_room(r)
    if r.provider and redis.call('ZCARD', r.order) == 0 then redis.call('ZREM', r.provider .. ':aside', r.model) end
  end
  for _, f in ipairs(freed) do
    if f.user and #rooms > 1 and not is_full(room, { user = f.user }) then
      for _, r in ipairs(rooms) do served(r, f.key) end
    end
  end
  call.freed = {}
end

-- revoke_unclaimed takes a granted slot from a lease that has not used it, while leases may have been lost: a master that was
-- replaced without noticing may have granted the slot in place of a lease that was renewed elsewhere.
local function revoke_unclaimed(room, lease, user)
  if redis.call('ZSCORE', room.holders, lease) and grace_of(room.call) > 0 then unhold(room, lease, user) end
end

-- take_free_slot gives a slot to a lease where none waits, and reports whether it did. No lease is behind it, so it costs nothing.
local function take_free_slot(room, lease)
  if redis.call('ZCARD', room.waiting) > 0 or redis.call('ZCARD', room.holders) >= room.cap then return false end
  local flow, _, cost = flow_of(room, lease)
  if is_full(room, flow) or held_back(room) > 0 or grace_of(room.call) > 0 then return false end
  hold(room, lease, flow.user, room.call.now + room.call.ttl)
  redis.call('HSET', room.state, 'taken', whole(room.call.now))
  charge_pace(room, cost)
  room.granted[flow.name], room.vacant = true, true
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
    return left > 0 and math.max(1, left) or call.users_next or call.ttl
  end
  local first = redis.call('ZRANGE', room.holders, 0, 0, 'WITHSCORES')
  if not first[2] then return call.ttl end
  return math.max(1, tonumber(first[2]) - call.now)
end

-- standing_of returns what the positions of a flow's leases depend on. It may be called after the last change.
local function standing_of(room, flow)
  if not flow.standing then
    local _, member = head_of(flow)
    flow.standing = {
      queue_tag = tonumber(redis.call('ZSCORE', room.order, flow.member) or '0'),
      user_tag = tonumber(redis.call('ZSCORE', flow.order, member) or '0'),
      users = math.max(1, redis.call('ZCARD', flow.order)), rank = redis.call('ZRANK', flow.order, member) or 0,
      waiting = read_state(room, 'n:' .. flow.queue), others = {},
    }
    local all = redis.call('ZRANGE', room.order, 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local queue = string.sub(all[i], 4)
      if queue ~= flow.queue then
        table.insert(flow.standing.others, {
          rounds = tonumber(all[i + 1]) <= flow.standing.queue_tag and 1 or 0,
          share = (WEIGHT[queue] or 1) / flow.weight, waiting = read_state(room, 'n:' .. queue),
        })
      end
    end
  end
  return flow.standing
end

-- position_of returns how many leases are estimated to be served before a waiting one, and its ticket: of each other user of
-- the queue as many as of its own, and of the other queues as many as their weights allow.
local function position_of(room, lease)
  local flow = flow_of(room, lease)
  local s = standing_of(room, flow)
  local before = math.min(redis.call('ZRANK', flow.key, lease) * s.users + s.rank, s.waiting - 1)
  local position = before
  for _, other in ipairs(s.others) do
    position = position + math.min(other.waiting, math.floor((before + other.rounds) * other.share))
  end
  return math.max(0, position), ticket_of(tonumber(redis.call('ZSCORE', flow.key, lease)), s.queue_tag, s.user_tag)
end
