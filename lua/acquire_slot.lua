-- acquire_slot: take a slot of a model, claim one that was granted, or wait for one. Idempotent by lease id. A lease
-- that enters the queue again passes its order and keeps its place.
--
-- KEYS[1] guard
-- KEYS[2] holders
-- KEYS[3] waiters
-- KEYS[4] waiting
-- KEYS[5] state
-- ARGV[1] lease id, {process}/{rest}
-- ARGV[2] model
-- ARGV[3] cap
-- ARGV[4] lease time in ms
-- ARGV[5] time in ms within which a grant has to be claimed
-- ARGV[6] prefix of the wake channels
-- ARGV[7] order the lease had before, 0 for a new one
-- ARGV[8] last epoch of the guard that the caller has seen
--
-- Returns {code, position, order, next, now}:
--   HELD     it held a slot already, or was granted one: renewed for the lease time
--   GRANTED  it holds a slot from now on, for the lease time
--   WAITING  it waits; position: the number of leases before it
--   order, position: 0 unless it waits; next: ms until a slot may become free without a notification, 0 when no lease
--   waits; now: Redis's clock in ms

-- include queue

local lease = ARGV[1]
local queue = {
  guard = KEYS[1], holders = KEYS[2], waiters = KEYS[3], waiting = KEYS[4], state = KEYS[5],
  model = ARGV[2], cap = tonumber(ARGV[3]), ttl = tonumber(ARGV[4]), grant = tonumber(ARGV[5]), wake = ARGV[6],
  known = tonumber(ARGV[8]),
}
local given = tonumber(ARGV[7])
if not (queue.cap and queue.ttl and queue.grant and queue.known and given) then return redis.error_reply('ERR acquire_slot: not a number') end

local now = clock()
purge(queue, now)
revoke_unclaimed(queue, now, lease)
if redis.call('ZSCORE', queue.holders, lease) then
  redis.call('ZADD', queue.holders, whole(now + queue.ttl), lease)
  return { 'HELD', 0, '0', next_expiry(queue, now), whole(now) }
end
join(queue, now, lease, given)
grant_free_slots(queue, now, { [lease] = true })
local order = redis.call('ZSCORE', queue.waiters, lease)
if not order then
  return { 'GRANTED', 0, '0', next_expiry(queue, now), whole(now) }
end
return { 'WAITING', redis.call('ZRANK', queue.waiters, lease), whole(tonumber(order)), next_expiry(queue, now), whole(now) }
