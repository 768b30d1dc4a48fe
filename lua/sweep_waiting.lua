-- sweep_waiting: hand over nodes that no other script has handed over, such as after the end of a grace or of a mark, and return the
-- waiters whose workflows were not signalled in time.
--
-- KEYS[1] guard
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] ms of grace to open where Redis may have lost leases
-- ARGV[3] last epoch of the guard that the caller has seen
--
-- Returns {code, handed}
--   SWEPT  handed: waiters whose workflows the caller has to signal

-- include fleet
-- include node

if not KEYS[1] then return redis.error_reply('ERR sweep_waiting: no key') end
local now = clock()
local stem, open_grace, known = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not (open_grace and known) then return redis.error_reply('ERR sweep_waiting: not a number') end
local late = redis.call('ZRANGEBYSCORE', stem .. 'waiting:promoted', '-inf', whole(now), 'LIMIT', 0, 64)
if #late == 0 and redis.call('EXISTS', stem .. 'waiting') == 0 then return { 'SWEPT', {} } end
-- include handover
for _, waiter in ipairs(late) do
  redis.call('ZADD', waiting .. ':promoted', whole(now + NOTIFY_AGAIN), waiter)
  handed[#handed + 1] = waiter
end
local pools, all = {}, redis.call('ZRANGE', waiting, 0, MAX_STEPS - 1, 'WITHSCORES')
for i = 1, #all, 2 do
  if redis.call('HEXISTS', waiting .. ':listed', all[i]) == 0 then
    pools[#pools + 1] = all[i]
    pools[#pools + 1] = all[i + 1]
  end
end
if #pools > 0 and not in_grace() then serve(pools, '', nil) end
return { 'SWEPT', handed }
