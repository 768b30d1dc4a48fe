-- put_conference: writes who owns a conference and how it stands (C12), as its workflow decided. A decision that is older
-- than what is there is refused. With another owner the live information goes, and the basic data stay (C20). The licence that
-- it has to have while it is alive is decided here, too (C22).
--
-- KEYS[1]  row: owner, generation, epoch, revision, status, start_ms, conference_id
-- KEYS[2]  information: basic, size; live:{field} for each field of the live information
-- KEYS[3]  the conference of this number that was over last: epoch:conference id
-- KEYS[4]  numbers of the conferences that have a licence
-- ARGV[1]  the conference's number
-- ARGV[2]  what the names of the units' sets begin with; {unit}/confs follows
-- ARGV[3]  unit that owns it; '' when none does
-- ARGV[4]  the unit's generation
-- ARGV[5]  epoch
-- ARGV[6]  revision, which orders the decisions about one conference; conferences of one number are ordered by their epochs
-- ARGV[7]  status
-- ARGV[8]  start of the copy, in ms
-- ARGV[9]  conference id
-- ARGV[10] basic data as JSON
-- ARGV[11] 1: it has no licence while it stands so
-- ARGV[12] how many licences there are, where it asks for one; 0: it does not ask, it has one whatever others have
--
-- Returns {code}
--   OK          written
--   STALE       a later decision is there, or a later conference of this number, or it is over; nothing changed
--   NO_LICENCE  all licences are in use; nothing changed

local row, info, licences, number, stem, owner = KEYS[1], KEYS[2], KEYS[4], ARGV[1], ARGV[2], ARGV[3]
local epoch, revision, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[12])
if not (epoch and revision and limit) then return redis.error_reply('ERR put_conference: not a number') end
local was = redis.call('HMGET', row, 'owner', 'generation', 'epoch', 'revision', 'conference_id')
if was[1] then
  local before, last = tonumber(was[3]), tonumber(was[4])
  if was[5] ~= ARGV[9] then
    if before > epoch then return { 'STALE' } end
  elseif last > revision or last == revision and before > epoch then
    return { 'STALE' }
  end
else
  local last, id = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+):(.*)$')
  if last and (id == ARGV[9] or tonumber(last) > epoch) then return { 'STALE' } end
end
if limit > 0 and redis.call('SISMEMBER', licences, number) == 0 and redis.call('SCARD', licences) >= limit then
  return { 'NO_LICENCE' }
end

if was[1] and was[1] ~= '' and was[1] ~= owner then redis.call('SREM', stem .. was[1] .. '/confs', number) end
if owner ~= '' then redis.call('SADD', stem .. owner .. '/confs', number) end
redis.call('HSET', row, 'owner', owner, 'generation', ARGV[4], 'epoch', ARGV[5], 'revision', ARGV[6],
  'status', ARGV[7], 'start_ms', ARGV[8], 'conference_id', ARGV[9])
if was[1] ~= owner or was[2] ~= ARGV[4] or was[3] ~= ARGV[5] then redis.call('DEL', info) end
redis.call('HSET', info, 'basic', ARGV[10])
if ARGV[11] == '1' then
  redis.call('SREM', licences, number)
else
  redis.call('SADD', licences, number)
end
return { 'OK' }
