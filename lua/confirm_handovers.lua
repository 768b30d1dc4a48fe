-- confirm_handovers: record which waiters' workflows have been signalled, and release the nodes of those without a workflow.
--
-- KEYS[1] guard
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] ms of grace to open where Redis may have lost leases
-- ARGV[3] last epoch of the guard that the caller has seen
-- ARGV[4] number of signalled waiters, which follow; the others have no workflow
-- ARGV[5...] waiters, see include handover
--
-- Returns {code, handed}
--   RECORDED  handed: waiters whose workflows the caller has to signal

-- include fleet
-- include node

if not KEYS[1] then return redis.error_reply('ERR confirm_handovers: no key') end
local now = clock()
local stem, open_grace, known = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local signalled = tonumber(ARGV[4])
local readable = open_grace and known and signalled
for i = 5, #ARGV do readable = readable and string.match(ARGV[i], '^node/x|user:[^/]+/1/[^/]+/.+$') end
if not readable then return redis.error_reply('ERR confirm_handovers: unreadable argument') end
-- include handover
for i = 5, #ARGV do
  if i - 5 < signalled then redis.call('ZREM', waiting .. ':promoted', ARGV[i]) else give_back(ARGV[i]) end
end
return { 'RECORDED', handed }
