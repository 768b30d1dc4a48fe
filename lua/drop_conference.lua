-- drop_conference: delete an ended conference with its information, its licence and its entry in its unit's set. A marker
-- keeps late writes from restoring it. Idempotent.
--
-- KEYS[1] row, as in put_conference
-- KEYS[2] information
-- KEYS[3] the last ended conference of this number: epoch:conference id
-- KEYS[4] numbers of the conferences that have a licence
-- ARGV[1] the conference's number
-- ARGV[2] prefix of the units' sets; {unit}/confs follows
-- ARGV[3] conference id
-- ARGV[4] the last epoch of the conference
-- ARGV[5] ms for which the marker is kept
-- ARGV[6] channel that gets the conference id
--
-- Returns {code}
--   OK     deleted, now or before
--   STALE  the number belongs to another conference now; nothing changed

local row, epoch, late = KEYS[1], tonumber(ARGV[4]), tonumber(ARGV[5])
if not (epoch and late) then return redis.error_reply('ERR drop_conference: not a number') end
local current = redis.call('HMGET', row, 'owner', 'epoch', 'conference_id')
if current[1] and current[3] ~= ARGV[3] and tonumber(current[2]) >= epoch then return { 'STALE' } end
local ended = tonumber(string.match(redis.call('GET', KEYS[3]) or '', '^%d+') or 0)

if current[1] and current[1] ~= '' then redis.call('SREM', ARGV[2] .. current[1] .. '/confs', ARGV[1]) end
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('DEL', row, KEYS[2])
if ended <= epoch then redis.call('SET', KEYS[3], ARGV[4] .. ':' .. ARGV[3], 'PX', ARGV[5]) end
redis.call('PUBLISH', ARGV[6], ARGV[3])
return { 'OK' }
