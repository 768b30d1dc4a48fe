-- The upstreams of a model; see include room. Each has its own slots, pace, pauses and, with an automatic cap, a learned one.

local limits_of, limits_in_use, upstreams_of, cap_of, upstream_named, used_of, stopped_for
local charge_pace, opens_in, is_open, usable_for, choose, stopped, free_slots, works
do -- a function has at most 200 local variables
  -- RAMP_STEP is in how many ms the slots of an upstream double after a pause, from one: its waiting calls do not all begin together.
  local RAMP_STEP = 250

  -- limits_of parses the limits that a process passes; nil when they are unreadable. 0 is no limit, except for cap.
  local parsed = {}
  function limits_of(base)
    if parsed[base] == nil then
      local ok, l = pcall(cjson.decode, base)
      local readable = ok and type(l) == 'table' and type(l.queues) == 'table' and type(l.upstreams) == 'table'
      for _, field in ipairs({ 'revision', 'userCap' }) do readable = readable and type(l[field]) == 'number' end
      for _, u in ipairs(readable and l.upstreams or {}) do
        for _, field in ipairs({ 'name', 'provider' }) do readable = readable and type(u[field]) == 'string' end
        for _, field in ipairs({ 'rank', 'providerCap', 'cap', 'min', 'rpm', 'tpm', 'context' }) do
          readable = readable and type(u[field]) == 'number'
        end
      end
      parsed[base] = readable and l
    end
    return parsed[base] or nil
  end

  -- limits_in_use returns the limits of a model: those that a process passes, unless Redis knows some of a newer revision. Redis keeps them
  -- for calls that concern the model without being about it; nil when no process has passed any.
  function limits_in_use(call, key, base)
    local v = redis.call('HMGET', key, 'base', 'revision')
    if not base or base == v[1] then return limits_of(v[1] or '') end
    local l = limits_of(base)
    if v[1] and tonumber(v[2] or '0') > l.revision then return limits_of(v[1]) or l end
    if not call.reads then redis.call('HSET', key, 'base', base, 'revision', whole(l.revision)) end
    return l
  end

-- include learned

  -- The fields of the limits of one upstream, each followed by a colon and its name.
  local FIELDS = { 'cap', 'rpm', 'tpm', 'paused', 'until', 'probe', 'learned', 'ramp' }

  -- upstream_of returns an upstream as a room uses it. v are the values of FIELDS.
  local function upstream_of(call, stem, l, v)
    local u = {
      name = l.name, rank = l.rank, context = l.context, holders = stem .. 'holders:' .. l.name, pace = stem .. 'pace:' .. l.name,
      rpm = tonumber(v[2] or l.rpm), tpm = tonumber(v[3] or l.tpm), paused = v[4] == '1', resumes = tonumber(v[5] or '0'), probing = v[6] == '1',
      provider = l.providerCap > 0 and call.prefix .. 'slots:provider:' .. l.provider, provider_cap = l.providerCap,
      automatic = l.auto == true and not v[1],
    }
    u.cap = tonumber(v[1] or nil) or u.automatic and learned_cap(l, v[7]) or l.cap
    u.whole_cap = u.cap
    if u.probing then u.cap = math.min(u.cap, 1) end
    local ramp = tonumber(v[8] or nil)
    if ramp and call.now >= ramp and call.now < ramp + 30 * RAMP_STEP then
      local steps = math.floor((call.now - ramp) / RAMP_STEP)
      if 2 ^ steps < u.cap then u.cap, u.grows = 2 ^ steps, ramp + (steps + 1) * RAMP_STEP end
    end
    u.works = not u.paused and u.resumes <= call.now
    return u
  end

  -- upstreams_of returns the upstreams of a model in the order in which they are preferred. Limits that operators have set for the whole
  -- model are those of its only upstream.
  function upstreams_of(call, stem, limits)
    local fields, list = { 'cap', 'rpm', 'tpm' }, {}
    for _, l in ipairs(limits.upstreams) do
      for _, field in ipairs(FIELDS) do fields[#fields + 1] = field .. ':' .. l.name end
    end
    local v = redis.call('HMGET', stem .. 'limits', unpack(fields))
    for i, l in ipairs(limits.upstreams) do
      local own, first = {}, 3 + (i - 1) * #FIELDS
      for j = 1, #FIELDS do own[j] = v[first + j] or #limits.upstreams == 1 and j <= 3 and v[j] or false end
      list[i] = upstream_of(call, stem, l, own)
    end
    return list
  end

  -- cap_of returns the number of slots of the upstreams that work; where none does, that of all.
  function cap_of(upstreams)
    local all, working = 0, nil
    for _, u in ipairs(upstreams) do
      all = all + u.cap
      if u.works then working = (working or 0) + u.cap end
    end
    return working or all
  end

  -- upstream_named returns an upstream by its name. One that is not in the limits any more has no slots, but calls.
  function upstream_named(room, name)
    for _, u in ipairs(room.upstreams) do
      if u.name == name then return u end
    end
    return { name = name, holders = room.stem .. 'holders:' .. name, cap = 0 }
  end

  -- used_of returns how many slots of an upstream are in use.
  function used_of(room, u)
    if room.call.reads then return redis.call('ZCOUNT', u.holders, '(' .. whole(room.call.now), '+inf') end
    if not u.used then
      redis.call('ZREMRANGEBYSCORE', u.holders, '-inf', whole(room.call.now))
      u.used = redis.call('ZCARD', u.holders)
    end
    return u.used
  end

  -- pace_left returns in how many milliseconds a limit per minute permits the next grant, of so many units, by the generic cell
  -- rate algorithm (ITU-T I.371) with a burst of a tenth: no minute has more than the limit, except where a grant has more units.
  local function pace_left(limit, units, used_up, now)
    local burst = math.max(1, math.floor(limit / 10))
    units = math.min(units, burst)
    local interval = 60000 / (limit - burst + units)
    return math.max(0, math.ceil(used_up - (burst - units) * interval - now)), interval
  end

  -- stopped_for returns for how many milliseconds an upstream is paused or over its pace.
  function stopped_for(call, u)
    local now, left = call.now, 0
    if u.paused then return call.ttl end
    if u.resumes > now then return u.resumes - now end
    if u.rpm == 0 and u.tpm == 0 then return 0 end
    local used = redis.call('HMGET', u.pace, 'requests', 'tokens')
    if u.rpm > 0 then left = pace_left(u.rpm, 1, tonumber(used[1] or '0'), now) end
    if u.tpm > 0 then left = math.max(left, (pace_left(u.tpm, 1000, tonumber(used[2] or '0'), now))) end
    return left
  end

  -- charge_pace records a grant, whose cost is in thousands of tokens.
  function charge_pace(call, u, cost)
    for field, c in pairs({ requests = { u.rpm, 1, 1 }, tokens = { u.tpm, 1000, cost * 1000 } }) do
      if c[1] > 0 then
        local _, interval = pace_left(c[1], c[2], 0, call.now)
        local used_up = math.max(call.now, tonumber(redis.call('HGET', u.pace, field) or '0')) + c[3] * interval
        redis.call('HSET', u.pace, field, string.format('%.17g', used_up))
        redis.call('PEXPIRE', u.pace, whole(math.max(120000, used_up - call.now)))
      end
    end
  end

  -- slot_expires returns in how many ms the first lease of a set expires.
  local function slot_expires(call, key)
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    return first[2] and math.max(1, tonumber(first[2]) - call.now) or call.ttl
  end

  -- opens_in returns in how many ms an upstream may take a call without a notification, 0 when it can take one now. Where its provider has
  -- no free slot, the model is set aside.
  function opens_in(room, u)
    local call = room.call
    if not u.opens then
      u.opens = stopped_for(call, u)
      if u.opens == 0 and used_of(room, u) >= u.cap then
        u.opens = slot_expires(call, u.holders)
        if u.grows then u.opens = math.min(u.opens, u.grows - call.now) end
      end
    end
    if u.opens > 0 or not u.provider then return u.opens end
    redis.call('ZREMRANGEBYSCORE', u.provider, '-inf', whole(call.now)) -- other models use it, too
    if redis.call('ZCARD', u.provider) < u.provider_cap then return 0 end
    set_aside(call, u.provider, room.model, ASIDE_TTL)
    return slot_expires(call, u.provider)
  end

  -- is_open reports whether an upstream of a room can take a call now.
  function is_open(room)
    for _, u in ipairs(room.upstreams) do
      if opens_in(room, u) == 0 then return true end
    end
    return false
  end

  -- needs_of returns what a lease needs of its upstream; see Lease in slot.go.
  local function needs_of(lease)
    local tokens, conversation, list = string.match(lease, '^[^/]+/[^/]+/[^/]+/(%d*);([^;/]*);([^/]*)/')
    local excluded = {}
    for name in string.gmatch(list or '', '[^,]+') do excluded[name] = true end
    return { tokens = tonumber(tokens) or 0, conversation = conversation or '', excluded = excluded }
  end

  -- usable_by returns the upstreams that may make the call of a lease, in the order in which they are preferred: those with room for its texts, if
  -- any has, without those that it excludes, while another one works.
  local function usable_by(room, needs)
    local fitting, others, working = {}, {}, false
    for _, u in ipairs(room.upstreams) do
      if u.context == 0 or needs.tokens <= u.context then table.insert(fitting, u) end
    end
    if not fitting[1] then fitting = room.upstreams end
    for _, u in ipairs(fitting) do
      if not needs.excluded[u.name] then
        table.insert(others, u)
        working = working or u.works
      end
    end
    return working and others or fitting
  end

  -- preferred_for returns which upstream of a rank the calls of a conversation prefer, by rendezvous hashing (Thaler, Ravishankar: Using
  -- Name-Based Mappings to Increase Hit Rates, 1998): that with the highest hash, whatever others there are.
  local function preferred_for(conversation, list, rank)
    local best, highest
    for _, u in ipairs(list) do
      if u.rank == rank then
        local hash = redis.sha1hex(conversation .. ' ' .. u.name)
        if not highest or hash > highest then best, highest = u, hash end
      end
    end
    return best
  end

  -- choose returns the upstream that makes the call of a lease now: of the first rank with a free slot that of its conversation, or else the
  -- one with the smallest part of its slots in use. It returns nil where none can.
  function choose(room, lease)
    if not room.upstreams[2] then
      local only = room.upstreams[1]
      return only and opens_in(room, only) == 0 and only or nil
    end
    local needs = needs_of(lease)
    local list, best = usable_by(room, needs), nil
    for _, u in ipairs(list) do
      if best and u.rank > best.rank then break end
      if opens_in(room, u) == 0 and (not best or used_of(room, u) / u.cap < used_of(room, best) / best.cap) then best = u end
    end
    if best and needs.conversation ~= '' then
      local preferred = preferred_for(needs.conversation, list, best.rank)
      if opens_in(room, preferred) == 0 then return preferred end
    end
    return best
  end

  -- usable_for returns the upstreams that may make the call of a lease.
  function usable_for(room, lease) return usable_by(room, needs_of(lease)) end

  -- stopped returns for how many milliseconds each of some upstreams, by default all, is paused or over its pace; nil where operators have paused
  -- them, or the room.
  function stopped(room, upstreams)
    local least
    for _, u in ipairs(upstreams or room.upstreams) do
      if not u.paused then least = math.min(least or math.huge, stopped_for(room.call, u)) end
    end
    return least
  end

  -- free_slots returns how many slots are free at the upstreams that work; where none does, at all.
  function free_slots(room)
    local all, working = 0, nil
    for _, u in ipairs(room.upstreams) do
      local free = math.max(0, u.cap - used_of(room, u))
      all = all + free
      if u.works then working = (working or 0) + free end
    end
    return working or all
  end

  -- works reports whether one of some upstreams of a room, by default all, takes calls, now or when others end.
  function works(room, upstreams)
    for _, u in ipairs(upstreams or room.upstreams) do
      if u.works and u.whole_cap > 0 then return not room.paused end
    end
    return false
  end
end
