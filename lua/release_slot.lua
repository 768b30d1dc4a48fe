-- release_slot: give back leases of a model, held, granted or waiting, and hand what is free to the next (T4, L7).
-- Idempotent: a lease that is not there is not missed.
--
-- KEYS[1] guard
-- KEYS[2] holders
-- KEYS[3] waiters
-- KEYS[4] waiting
-- KEYS[5] state
-- ARGV[1] model
-- ARGV[2] cap
-- ARGV[3] lease time in ms
-- ARGV[4] time in ms in which a grant has to be claimed
-- ARGV[5] prefix of the wake channels
-- ARGV[6...] lease ids
--
-- Returns {code, count, next}:
--   RELEASED  none of them holds or waits any more; count = how many held a slot that had not expired;
--             next = ms until a slot may become free unheard, such as by an unclaimed grant; 0 when nobody waits

-- include queue

local room = {
  guard = KEYS[1], holders = KEYS[2], waiters = KEYS[3], waiting = KEYS[4], state = KEYS[5],
  model = ARGV[1], cap = tonumber(ARGV[2]), ttl = tonumber(ARGV[3]), grant = tonumber(ARGV[4]), wake = ARGV[5],
}
if not (room.cap and room.ttl and room.grant) then return redis.error_reply('ERR release_slot: not a number') end

local now, count = clock(), 0
purge(room, now)
for i = 6, #ARGV do
  count = count + redis.call('ZREM', room.holders, ARGV[i])
  redis.call('ZREM', room.waiters, ARGV[i])
  redis.call('ZREM', room.waiting, ARGV[i])
end
hand_out(room, now, {})
return { 'RELEASED', count, next_expiry(room, now) }
