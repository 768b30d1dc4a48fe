-- leave_waiting: remove work that no longer waits for a node, and release the node that was reserved for it. Idempotent.
--
-- KEYS[1] guard
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] ms of grace to open where Redis may have lost leases
-- ARGV[3] last epoch of the guard that the caller has seen
-- ARGV[4] pool
-- ARGV[5] waiter, see include handover
--
-- Returns {code, handed}
--   LEFT  handed: waiters whose workflows the caller has to signal

-- include fleet
-- include node

if not KEYS[1] then return redis.error_reply('ERR leave_waiting: no key') end
local now = clock()
local stem, open_grace, known = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not (open_grace and known and string.match(ARGV[5] or '', '^node/x|user:[^/]+/1/[^/]+/.+$')) then
  return redis.error_reply('ERR leave_waiting: unreadable argument')
end
-- include handover
forget_waiter(ARGV[5], ARGV[4])
give_back(ARGV[5])
return { 'LEFT', handed }
