-- estimate_wait: estimate how many calls of a model are served before the one of a task, and how long that takes. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] waiter of the task, see include model_waiters; it need not exist
-- ARGV[4] limits of the model that apply if no process has used it, see limits_of in include upstream
--
-- Returns {code, position, wait, paused, upstreams}:
--   OK  position: calls that are served before; wait: ms until the call gets a slot, -1 when it is not known; paused: 1 when no upstream that may
--       make the call works; upstreams: their names with commas, empty where all may

-- include room
-- include estimate

local call, waiter = call_of(ARGV[1], KEYS[1], 1, 1, 0), ARGV[3]
if not (is_lease(waiter) and limits_of(ARGV[4])) then return redis.error_reply('ERR estimate_wait: unreadable argument') end
call.reads = true
local room = room_of(call, ARGV[2]) or room_of(call, ARGV[2], ARGV[4])
local position, upstreams = waiting_position(room, waiter)
if position then return { 'OK', position, wait_of(room, position, upstreams) } end
local wait
position, wait = estimate(room, flow_of(room, waiter).path)
return { 'OK', position, wait, works(room) and 0 or 1, '' }
