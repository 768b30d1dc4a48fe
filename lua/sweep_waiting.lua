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
-- All of up to some hundred pools with waiters are considered, of more these many in turns: those in which a node is free.
local PAGE = 1000
local page = redis.call('ZSCAN', waiting, redis.call('HGET', waiting .. ':state', 'sweep') or '0', 'COUNT', PAGE)
if page[1] == '0' then
  redis.call('HDEL', waiting .. ':state', 'sweep')
else
  redis.call('HSET', waiting .. ':state', 'sweep', page[1])
end
choosing.changes().purge_due(stem, now, MAX_DEAD)
choosing.changes().purge_marks(stem, now, MAX_DEAD)
local pools, all = {}, page[2]
for i = 1, #all, 2 do
  forget_expired(pool_room(all[i]))
  local required = redis.call('HGET', waiting .. ':listed', all[i])
  if required then -- its waiters need a list of nodes
    anchor(all[i], required) -- an earlier version may have entered it
  elseif redis.call('EXISTS', pool_key(stem, all[i], 'open')) == 1 then
    pools[#pools + 1] = all[i]
    pools[#pools + 1] = all[i + 1]
  end
end
if #pools > 0 and not in_grace() then serve(pools, '', nil) end
return { 'SWEPT', handed }
