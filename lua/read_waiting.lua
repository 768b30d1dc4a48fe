-- read_waiting: estimate how much work of a pool gets a node before a waiter does. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] ms of grace to open where Redis may have lost leases
-- ARGV[3] last epoch of the guard that the caller has seen
-- ARGV[4] pool
-- ARGV[5] waiter, see include handover
--
-- Returns {code, position}
--   OK  position: -1 for work that does not wait

-- include fleet
-- include node

if not KEYS[1] then return redis.error_reply('ERR read_waiting: no key') end
local now = clock()
local stem, open_grace, known = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not (open_grace and known and string.match(ARGV[5] or '', '^node/x|user:[^/]+/1/[^/]+/.+$')) then
  return redis.error_reply('ERR read_waiting: unreadable argument')
end
-- include handover
local room = pool_room(ARGV[4])
if not redis.call('ZSCORE', room.waiting, ARGV[5]) then return { 'OK', -1 } end
return { 'OK', (position_of(room, ARGV[5])) }
