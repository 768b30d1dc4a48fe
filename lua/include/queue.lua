-- The slots of a model and the queue of leases that wait for one, shared by the slot scripts.
--   holders  zset  lease -> expiry in Redis milliseconds; a grant not claimed yet has a short one
--   waiters  zset  lease -> order of service
--   waiting  zset  the same leases -> expiry of their place in the queue
--   state    hash  arrivals: the last order that was assigned
--   limits   hash  until: no slot is granted before; probe: 1 while only one slot is granted, see report_call
--   guard    hash  see include guard

-- whole formats a number without an exponent, the same on every server.
local function whole(n) return string.format('%.0f', n) end

-- clock returns Redis's time in whole milliseconds.
local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- include guard

-- order_of returns the place of a lease in the order of service: by arrival, lowest first; a lease that had an order
-- keeps it. Orders never decrease, even in a Redis that lost its data, because they follow its clock in microseconds.
local function order_of(queue, given)
  if given > 0 then return given end
  local t, last = redis.call('TIME'), tonumber(redis.call('HGET', queue.state, 'arrivals') or '0')
  local order = math.max(last + 1, tonumber(t[1]) * 1000000 + tonumber(t[2]))
  redis.call('HSET', queue.state, 'arrivals', whole(order))
  return order
end

-- purge removes expired holders, and waiters whose process stopped renewing them.
local function purge(queue, now)
  redis.call('ZREMRANGEBYSCORE', queue.holders, '-inf', whole(now))
  for _, lease in ipairs(redis.call('ZRANGEBYSCORE', queue.waiting, '-inf', whole(now))) do
    redis.call('ZREM', queue.waiters, lease)
    redis.call('ZREM', queue.waiting, lease)
  end
end

-- waiter_ttl returns how long a waiter lasts without renewal: shorter than a lease by one grant, so that grants to the
-- waiters of a dead process do not hold back its slots beyond their expiry.
local function waiter_ttl(queue) return math.max(queue.ttl - queue.grant, math.ceil(queue.ttl / 2)) end

-- join adds a lease to the queue, or keeps its place there.
local function join(queue, now, lease, given)
  if not redis.call('ZSCORE', queue.waiters, lease) then
    redis.call('ZADD', queue.waiters, whole(order_of(queue, given)), lease)
  end
  redis.call('ZADD', queue.waiting, whole(now + waiter_ttl(queue)), lease)
end

-- revoke_unclaimed takes a granted slot from a lease that has not used it, while leases may have been lost: a master that was
-- replaced without noticing may have granted the slot in the place of a lease that was renewed elsewhere.
local function revoke_unclaimed(queue, now, lease)
  if redis.call('ZSCORE', queue.holders, lease) and grace(queue.guard, now, queue.ttl, queue.known) > 0 then
    redis.call('ZREM', queue.holders, lease)
  end
end

-- permitted returns how many slots may be held now, and for how many milliseconds none is granted.
local function permitted(queue, now)
  local v = redis.call('HMGET', string.sub(queue.holders, 1, -#'holders' - 1) .. 'limits', 'until', 'probe')
  return v[2] == '1' and math.min(queue.cap, 1) or queue.cap, math.max(0, tonumber(v[1] or '0') - now)
end

-- grant_free_slots grants free slots to the first waiters. A lease of `mine` belongs to the caller and holds immediately.
-- Any other is granted for a short time, and its process is notified; the message has the order, so that a late claim
-- keeps its place.
local function grant_free_slots(queue, now, mine)
  local slots, paused = permitted(queue, now)
  local free = slots - redis.call('ZCARD', queue.holders)
  if free <= 0 or paused > 0 or redis.call('ZCARD', queue.waiters) == 0 then return end
  if grace(queue.guard, now, queue.ttl, queue.known) > 0 then return end
  while free > 0 do
    local first = redis.call('ZPOPMIN', queue.waiters)
    if not first[1] then return end
    local lease, order = first[1], tonumber(first[2])
    redis.call('ZREM', queue.waiting, lease)
    if mine[lease] then
      redis.call('ZADD', queue.holders, whole(now + queue.ttl), lease)
    else
      local expiry = whole(now + queue.grant)
      redis.call('ZADD', queue.holders, expiry, lease)
      local process = string.match(lease, '^([^/]+)/')
      if process then
        redis.call('PUBLISH', queue.wake .. process, whole(order) .. '\n' .. expiry .. '\n' .. queue.model .. '\n' .. lease)
      end
    end
    free = free - 1
  end
end

-- next_expiry returns in how many milliseconds a slot may become free without a notification; 0 when no lease waits.
local function next_expiry(queue, now)
  if redis.call('ZCARD', queue.waiters) == 0 then return 0 end
  local slots, paused = permitted(queue, now)
  if redis.call('ZCARD', queue.holders) < slots then return math.max(1, paused, grace(queue.guard, now, queue.ttl, queue.known)) end
  local first = redis.call('ZRANGE', queue.holders, 0, 0, 'WITHSCORES')
  if not first[2] then return queue.ttl end
  return math.max(1, tonumber(first[2]) - now)
end
