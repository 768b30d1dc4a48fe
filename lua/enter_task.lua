-- enter_task: enter the waiter of a task whose workflow waits until its call may wait for a slot of a model. Idempotent.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] limits of the model, see limits_of in include upstream
-- ARGV[7] waiter, see include model_waiters
-- ARGV[8] ms until the task's deadline
-- ARGV[9] number that orders the user's waiters in the queue, empty for one that is new
--
-- Returns {code, promotions}:
--   PROMOTED  the call may be made; it requests the slot with this waiter
--   WAITING   the workflow will be signalled
--   promotions: model and waiter of each workflow that the caller has to signal

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local waiter, left = ARGV[7], tonumber(ARGV[8])
local readable = call.ttl and call.grant and call.known and limits_of(ARGV[6]) and left and string.match(ARGV[9], '^%d*$')
if not (readable and is_lease(waiter)) then return redis.error_reply('ERR enter_task: unreadable argument') end

local room = room_of(call, ARGV[5], ARGV[6])
local waiters = waiters_of(room)
waiters.lasts = left
if redis.call('ZREM', waiters.promoted, waiter) == 1 then redis.call('ZADD', waiters.signalled, whole(call.now + SIGNALLED_FOR), waiter) end
if not redis.call('ZSCORE', waiters.signalled, waiter) then join(waiters, waiter, ARGV[9] ~= '' and ARGV[9] .. '/0' or '') end
room.granted[flow_of(waiters, waiter).path], room.waiter = true, waiter
serve(room)
return { redis.call('ZSCORE', waiters.waiting, waiter) and 'WAITING' or 'PROMOTED', call.promotions }
