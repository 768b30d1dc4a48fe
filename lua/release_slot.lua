-- release_slot: release leases of a model, held, granted or waiting, and grant the free slots to the next waiters, also
-- of other models that wait for a slot of the same user or provider. Idempotent: an unknown lease is not an error.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] limits of the model, see limits_of in include upstream
-- ARGV[7...] lease ids
--
-- Returns {code, count, next, promotions}:
--   RELEASED  none of the leases holds or waits; count: how many held a slot and had not expired;
--             next: ms until a slot may become free without a notification, such as by an unclaimed grant; 0 when no
--             lease waits; promotions: see include model_waiters

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local readable = call.ttl and call.grant and call.known and limits_of(ARGV[6])
for i = 7, #ARGV do readable = readable and is_lease(ARGV[i]) end
if not readable then return redis.error_reply('ERR release_slot: unreadable argument') end

local room = room_of(call, ARGV[5], ARGV[6])
purge(room)
local count = 0
for i = 7, #ARGV do
  if unhold(room, ARGV[i], (flow_of(room, ARGV[i]))) then
    count = count + 1
  else
    leave(room, ARGV[i])
  end
end
serve(room)
return { 'RELEASED', count, next_expiry(room), call.promotions }
