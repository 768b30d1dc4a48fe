-- estimate_wait: estimate how many calls of a model are served before the one of a task, and how long that takes.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] entry of the task, see include entries; it need not exist
-- ARGV[4] number of calls that are known to be served before, empty to estimate it
--
-- Returns {code, position, wait}:
--   OK        position: calls that are served before; wait: ms until the call gets a slot, -1 when it is not known
--   UNKNOWN   no process has used the model since Redis lost its data, if ever

-- include room

local call, entry = call_of(ARGV[1], KEYS[1], 1, 1, 0), ARGV[3]
if not (is_lease(entry) and string.match(ARGV[4], '^%d*$')) then return redis.error_reply('ERR estimate_wait: unreadable argument') end
local room = room_of(call, ARGV[2])
if not room then return { 'UNKNOWN', 0, -1 } end
if ARGV[4] ~= '' then return { 'OK', tonumber(ARGV[4]), wait_at(room, tonumber(ARGV[4])) } end
local flow = flow_of(room, entry)
local position, wait = estimate(room, flow.queue, flow.user, entry)
return { 'OK', position, wait }
