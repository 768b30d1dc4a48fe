-- put_conference: write a conference's owner and status as its workflow decided them. A decision older than the stored one
-- is rejected. When the owner changes, the live information is deleted. The basic data are kept, and the participants as the
-- field former, so that it is known who will return; those of the unit before too, if they had no time to return. The metadata
-- of the room are kept as formerRoomMetadata until the next owner reports them. The same decision grants the licence that an
-- active conference needs.
--
-- KEYS[1]  row: owner, generation, epoch, revision, status, start_ms, conference_id; since: ms of the last change of owner
-- KEYS[2]  information: basic, size; live:{field} for each field of the live information
-- KEYS[3]  the last ended conference of this number: epoch:conference id
-- KEYS[4]  numbers of the conferences that have a licence
-- ARGV[1]  the conference's number
-- ARGV[2]  prefix of the units' sets; {unit}/confs follows
-- ARGV[3]  unit that owns it, or ''
-- ARGV[4]  the unit's generation
-- ARGV[5]  epoch
-- ARGV[6]  revision, which orders the decisions about one conference; conferences of one number are ordered by epoch
-- ARGV[7]  status
-- ARGV[8]  start of the copy, in ms
-- ARGV[9]  conference id
-- ARGV[10] basic data as JSON
-- ARGV[11] 1: it has no licence in this state
-- ARGV[12] number of licences, where the conference requests one; 0: it has one, whatever the number
-- ARGV[13] channel that gets the conference id
--
-- Returns {code}
--   OK          written
--   STALE       there is a later decision, or a later conference of this number, or it has ended; nothing changed
--   NO_LICENCE  all licences are in use; nothing changed

-- include clock

local RETURN_TIME = 60000 -- ms within which participants return to a new owner
local MAX_FORMER = 262144 -- bytes of all former participants

local row, info, licences, number, stem, owner = KEYS[1], KEYS[2], KEYS[4], ARGV[1], ARGV[2], ARGV[3]
local epoch, revision, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[12])
if not (epoch and revision and limit) then return redis.error_reply('ERR put_conference: not a number') end
local current = redis.call('HMGET', row, 'owner', 'generation', 'epoch', 'revision', 'conference_id', 'since')
if current[1] then
  local before, last = tonumber(current[3]), tonumber(current[4])
  if current[5] ~= ARGV[9] then
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

-- returning returns the participants that are expected to return, as a JSON array; nil for none.
local function returning(now)
  local here, before = redis.call('HGET', info, 'live:participants'), redis.call('HGET', info, 'live:former')
  if not here or here == '[]' then return before end
  -- An empty array inside would become an object.
  local late = now - tonumber(current[6] or '0') >= RETURN_TIME
  if not before or late or #here + #before > MAX_FORMER or string.find(before, '%[%s*%]') then return here end
  local ok, joined = pcall(function()
    local present, published, missing, kept, without = cjson.decode(here), {}, {}, {}, {}
    local rebuilt = not string.find(here, '%[%s*%]')
    local function has_tracks(p) return type(p.tracks) == 'table' and #p.tracks > 0 end
    for _, p in ipairs(present) do published[p.identity] = has_tracks(p) end
    for _, p in ipairs(cjson.decode(before)) do
      local late_tracks = published[p.identity] == false and has_tracks(p) and rebuilt -- it has returned, but not its tracks
      if late_tracks then without[p.identity] = true end
      if late_tracks or published[p.identity] == nil then missing[#missing + 1] = cjson.encode(p) end
    end
    if #missing == 0 then return here end
    if not next(without) then return string.gsub(here, '%]%s*$', '') .. ',' .. table.concat(missing, ',') .. ']' end
    for _, p in ipairs(present) do
      if not without[p.identity] then kept[#kept + 1] = cjson.encode(p) end
    end
    for _, p in ipairs(missing) do kept[#kept + 1] = p end
    return '[' .. table.concat(kept, ',') .. ']'
  end)
  return ok and joined or here -- a unit may report its participants in another form
end

if current[1] and current[1] ~= '' and current[1] ~= owner then redis.call('SREM', stem .. current[1] .. '/confs', number) end
if owner ~= '' then redis.call('SADD', stem .. owner .. '/confs', number) end
redis.call('HSET', row, 'owner', owner, 'generation', ARGV[4], 'epoch', ARGV[5], 'revision', ARGV[6],
  'status', ARGV[7], 'start_ms', ARGV[8], 'conference_id', ARGV[9])
if current[1] ~= owner or current[2] ~= ARGV[4] or current[3] ~= ARGV[5] then
  local now = clock()
  local roster = returning(now)
  local metadata = redis.call('HGET', info, 'live:roomMetadata') or redis.call('HGET', info, 'live:formerRoomMetadata')
  if owner ~= '' then redis.call('HSET', row, 'since', whole(now)) end
  redis.call('DEL', info)
  if roster and current[5] == ARGV[9] then redis.call('HSET', info, 'live:former', roster) end
  if metadata and current[5] == ARGV[9] then redis.call('HSET', info, 'live:formerRoomMetadata', metadata) end
end
redis.call('HSET', info, 'basic', ARGV[10])
if ARGV[11] == '1' then
  redis.call('SREM', licences, number)
else
  redis.call('SADD', licences, number)
end
redis.call('PUBLISH', ARGV[13], ARGV[9])
return { 'OK' }
