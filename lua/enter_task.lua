-- enter_task: enter the entry of a task whose workflow waits until its call may wait for a slot of a model. Idempotent.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] limits of the model, see limits_of in include room
-- ARGV[7] entry, see include entries
-- ARGV[8] ms until the task's deadline
-- ARGV[9] number that orders the user's entries in the queue, empty for one that is new
--
-- Returns {code, promotions}:
--   PROMOTED  the call may be made; it requests the slot with this entry
--   WAITING   the workflow will be signalled
--   promotions: model and entry of each workflow that the caller has to signal

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local entry, left = ARGV[7], tonumber(ARGV[8])
local readable = call.ttl and call.grant and call.known and limits_of(ARGV[6]) and left and string.match(ARGV[9], '^%d*$')
if not (readable and is_lease(entry)) then return redis.error_reply('ERR enter_task: unreadable argument') end

local room = room_of(call, ARGV[5], ARGV[6])
local entries = entries_of(room)
entries.lasts = left
if redis.call('ZREM', entries.promoted, entry) == 1 then redis.call('ZADD', entries.signalled, whole(call.now + SIGNALLED_FOR), entry) end
if not redis.call('ZSCORE', entries.signalled, entry) then join(entries, entry, ARGV[9] ~= '' and ARGV[9] .. '/0/0' or '') end
room.granted[flow_of(entries, entry).name], room.entry = true, entry
serve(room)
return { redis.call('ZSCORE', entries.waiting, entry) and 'WAITING' or 'PROMOTED', call.promotions }
