-- release_slot: release leases of a model, held, granted or waiting, and grant the free slots to the next waiters.
-- Idempotent: an unknown lease is not an error.
--
-- KEYS[1] guard
-- KEYS[2] holders
-- KEYS[3] waiters
-- KEYS[4] waiting
-- KEYS[5] state
-- ARGV[1] model
-- ARGV[2] cap
-- ARGV[3] lease time in ms
-- ARGV[4] time in ms within which a grant has to be claimed
-- ARGV[5] prefix of the wake channels
-- ARGV[6] last epoch of the guard that the caller has seen
-- ARGV[7...] lease ids
--
-- Returns {code, count, next}:
--   RELEASED  none of the leases holds or waits; count: how many held a slot and had not expired;
--             next: ms until a slot may become free without a notification, such as by an unclaimed grant; 0 when no
--             lease waits

-- include queue

local queue = {
  guard = KEYS[1], holders = KEYS[2], waiters = KEYS[3], waiting = KEYS[4], state = KEYS[5],
  model = ARGV[1], cap = tonumber(ARGV[2]), ttl = tonumber(ARGV[3]), grant = tonumber(ARGV[4]), wake = ARGV[5],
  known = tonumber(ARGV[6]),
}
if not (queue.cap and queue.ttl and queue.grant and queue.known) then return redis.error_reply('ERR release_slot: not a number') end

local now, count = clock(), 0
purge(queue, now)
for i = 7, #ARGV do
  count = count + redis.call('ZREM', queue.holders, ARGV[i])
  redis.call('ZREM', queue.waiters, ARGV[i])
  redis.call('ZREM', queue.waiting, ARGV[i])
end
grant_free_slots(queue, now, {})
return { 'RELEASED', count, next_expiry(queue, now) }
