-- drop_conference: forgets a conference that is over, with its information, its licence and its place among its unit's (C17).
-- What is left for a while keeps late writes from bringing it back. Idempotent.
--
-- KEYS[1] row, as in put_conference
-- KEYS[2] information
-- KEYS[3] the conference of this number that was over last: epoch:conference id
-- KEYS[4] numbers of the conferences that have a licence
-- ARGV[1] the conference's number
-- ARGV[2] what the names of the units' sets begin with; {unit}/confs follows
-- ARGV[3] conference id
-- ARGV[4] the last epoch of the conference, which is over
-- ARGV[5] how long, in ms, a write may come late
--
-- Returns {code}
--   OK     it is not there any more
--   STALE  the number is another conference's by now; nothing changed

local row, epoch, late = KEYS[1], tonumber(ARGV[4]), tonumber(ARGV[5])
if not (epoch and late) then return redis.error_reply('ERR drop_conference: not a number') end
local was = redis.call('HMGET', row, 'owner', 'epoch', 'conference_id')
if was[1] and was[3] ~= ARGV[3] and tonumber(was[2]) >= epoch then return { 'STALE' } end
local over = tonumber(string.match(redis.call('GET', KEYS[3]) or '', '^%d+') or 0)

if was[1] and was[1] ~= '' then redis.call('SREM', ARGV[2] .. was[1] .. '/confs', ARGV[1]) end
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('DEL', row, KEYS[2])
if over <= epoch then redis.call('SET', KEYS[3], ARGV[4] .. ':' .. ARGV[3], 'PX', ARGV[5]) end
return { 'OK' }
