-- A model's concurrency lease and its waiting room, shared by the slot scripts (T4, L7, L12).
--   holders  zset  lease -> expiry in Redis milliseconds; a grant not claimed yet has a short one
--   waiters  zset  lease -> order of service
--   waiting  zset  the same leases -> expiry of their process's interest
--   state    hash  arrivals: the last order given
--   guard    hash  run: the server the guard was written on, grace: until when nothing may be granted

-- whole prints a number without an exponent, alike on every server.
local function whole(n) return string.format('%.0f', n) end

-- clock is Redis's time in whole milliseconds.
local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- server is the run id of this Redis, empty where it has none.
local function server()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then return '' end
  return string.match(info, 'run_id:(%w+)') or ''
end

-- grace tells for how many milliseconds nothing may be granted yet. A guard that is missing, or was written on
-- another server, means that holders may have been forgotten: it opens one lease time of grace.
local function grace(guard, now, ttl)
  local run, seen = server(), redis.call('HMGET', guard, 'run', 'grace')
  if seen[1] == run and seen[2] then return math.max(0, tonumber(seen[2]) - now) end
  redis.call('HSET', guard, 'run', run, 'grace', whole(now + ttl))
  return ttl
end

-- order_of is the one place that decides who is served before whom: by arrival, lowest first; who comes back
-- brings the order it had. Orders never go back, even in a Redis that was wiped, because they follow its clock in
-- microseconds.
local function order_of(room, given)
  if given > 0 then return given end
  local t, last = redis.call('TIME'), tonumber(redis.call('HGET', room.state, 'arrivals') or '0')
  local order = math.max(last + 1, tonumber(t[1]) * 1000000 + tonumber(t[2]))
  redis.call('HSET', room.state, 'arrivals', whole(order))
  return order
end

-- purge forgets holders whose lease ended and waiters whose process fell silent.
local function purge(room, now)
  redis.call('ZREMRANGEBYSCORE', room.holders, '-inf', whole(now))
  for _, lease in ipairs(redis.call('ZRANGEBYSCORE', room.waiting, '-inf', whole(now))) do
    redis.call('ZREM', room.waiters, lease)
    redis.call('ZREM', room.waiting, lease)
  end
end

-- interest is how long a waiter counts without a sign of its process: shorter than a lease by one grant, so that the
-- slots of a process that died are not held up beyond their expiry by grants to its own waiters.
local function interest(room) return math.max(room.ttl - room.grant, math.ceil(room.ttl / 2)) end

-- join puts a lease into the waiting room, or keeps its place there.
local function join(room, now, lease, given)
  if not redis.call('ZSCORE', room.waiters, lease) then
    redis.call('ZADD', room.waiters, whole(order_of(room, given)), lease)
  end
  redis.call('ZADD', room.waiting, whole(now + interest(room)), lease)
end

-- hand_out gives free slots to the first waiters. A lease of `mine` is present and holds at once; any other is
-- granted for a short time and its process is told, with the order so that a late claim keeps its place.
local function hand_out(room, now, mine)
  local free = room.cap - redis.call('ZCARD', room.holders)
  if free <= 0 or redis.call('ZCARD', room.waiters) == 0 then return end
  if grace(room.guard, now, room.ttl) > 0 then return end
  while free > 0 do
    local first = redis.call('ZPOPMIN', room.waiters)
    if not first[1] then return end
    local lease, order = first[1], tonumber(first[2])
    redis.call('ZREM', room.waiting, lease)
    if mine[lease] then
      redis.call('ZADD', room.holders, whole(now + room.ttl), lease)
    else
      local expiry = whole(now + room.grant)
      redis.call('ZADD', room.holders, expiry, lease)
      local process = string.match(lease, '^([^/]+)/')
      if process then
        redis.call('PUBLISH', room.wake .. process, whole(order) .. '\n' .. expiry .. '\n' .. room.model .. '\n' .. lease)
      end
    end
    free = free - 1
  end
end

-- next_expiry is in how many milliseconds a slot may become free without anybody saying so; 0 when nobody waits.
local function next_expiry(room, now)
  if redis.call('ZCARD', room.waiters) == 0 then return 0 end
  if redis.call('ZCARD', room.holders) < room.cap then return math.max(1, grace(room.guard, now, room.ttl)) end
  local first = redis.call('ZRANGE', room.holders, 0, 0, 'WITHSCORES')
  if not first[2] then return room.ttl end
  return math.max(1, tonumber(first[2]) - now)
end
