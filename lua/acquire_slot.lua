-- acquire_slot: take a slot of a model, claim one that was granted, or wait for one (T4, L7).
-- Idempotent by lease id. A lease that comes back brings its order and keeps its place.
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
-- ARGV[5] time in ms in which a grant has to be claimed
-- ARGV[6] prefix of the wake channels
-- ARGV[7] order it had, 0 when it never had one
--
-- Returns {code, position, order, next, now}:
--   HELD     it already held a slot (or was granted one): renewed for the lease time
--   GRANTED  it holds a slot now, for the lease time
--   WAITING  it waits; position = how many are before it
--   order, position: 0 unless waiting; next: ms until a slot may become free unheard, 0 when nobody waits;
--   now: Redis's clock in ms

-- include queue

local lease = ARGV[1]
local room = {
  guard = KEYS[1], holders = KEYS[2], waiters = KEYS[3], waiting = KEYS[4], state = KEYS[5],
  model = ARGV[2], cap = tonumber(ARGV[3]), ttl = tonumber(ARGV[4]), grant = tonumber(ARGV[5]), wake = ARGV[6],
}
local given = tonumber(ARGV[7])
if not (room.cap and room.ttl and room.grant and given) then return redis.error_reply('ERR acquire_slot: not a number') end

local now = clock()
purge(room, now)
if redis.call('ZSCORE', room.holders, lease) then
  redis.call('ZADD', room.holders, whole(now + room.ttl), lease)
  return { 'HELD', 0, '0', next_expiry(room, now), whole(now) }
end
join(room, now, lease, given)
hand_out(room, now, { [lease] = true })
local order = redis.call('ZSCORE', room.waiters, lease)
if not order then
  return { 'GRANTED', 0, '0', next_expiry(room, now), whole(now) }
end
return { 'WAITING', redis.call('ZRANK', room.waiters, lease), whole(tonumber(order)), next_expiry(room, now), whole(now) }
