-- leave_task: remove the waiter of a task that has ended. Idempotent.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] limits of the model, see limits_of in include upstream
-- ARGV[7] waiter, see include model_waiters
--
-- Returns {code, promotions}:
--   LEFT  promotions: model and waiter of each workflow that the caller has to signal

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
if not (call.ttl and call.grant and call.known and limits_of(ARGV[6]) and is_lease(ARGV[7])) then
  return redis.error_reply('ERR leave_task: unreadable argument')
end

local room = room_of(call, ARGV[5], ARGV[6])
forget_waiter(room, ARGV[7])
serve(room)
return { 'LEFT', call.promotions }
