-- confirm_promotions: record which promoted waiters of a model have been signalled, and remove those without a workflow.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] limits of the model, see limits_of in include upstream
-- ARGV[7] number of signalled waiters, which follow; the others are removed
-- ARGV[8...] waiters, see include model_waiters
--
-- Returns {code, promotions}:
--   RECORDED  promotions: model and waiter of each workflow that the caller has to signal

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local signalled = tonumber(ARGV[7])
local readable = call.ttl and call.grant and call.known and limits_of(ARGV[6]) and signalled
for i = 8, #ARGV do readable = readable and is_lease(ARGV[i]) end
if not readable then return redis.error_reply('ERR confirm_promotions: unreadable argument') end

local room = room_of(call, ARGV[5], ARGV[6])
local waiters = waiters_of(room)
for i = 8, #ARGV do
  if i - 8 >= signalled then
    forget_waiter(room, ARGV[i])
  elseif redis.call('ZREM', waiters.promoted, ARGV[i]) == 1 then -- otherwise its call has begun
    redis.call('ZADD', waiters.signalled, whole(call.now + SIGNALLED_FOR), ARGV[i])
  end
end
serve(room)
return { 'RECORDED', call.promotions }
