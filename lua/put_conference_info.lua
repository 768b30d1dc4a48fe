-- put_conference_info: write a conference's live information on behalf of its owner. A message from a unit with another
-- generation or epoch is stale: it is rejected and counted. Of live information, only the fields former and formerRoomMetadata
-- are written elsewhere, by put_conference.
--
-- KEYS[1]  row, as in put_conference
-- KEYS[2]  information, as in put_conference
-- KEYS[3]  rejected messages by unit
-- ARGV[1]  unit that writes
-- ARGV[2]  its generation
-- ARGV[3]  the epoch that it was assigned
-- ARGV[4]  1 when this replaces all live information
-- ARGV[5]  maximum number of bytes of live information
-- ARGV[6…] a field's name and its JSON, alternating; '' deletes the field
--
-- Returns {code}
--   OK         written
--   STALE      the unit is not the owner; counted, nothing else changed
--   UNKNOWN    conference not found; nothing changed
--   TOO_LARGE  the information would exceed the limit; nothing changed

local row, info, unit, full, max_size = KEYS[1], KEYS[2], ARGV[1], ARGV[4] == '1', tonumber(ARGV[5])
if not max_size then return redis.error_reply('ERR put_conference_info: not a number') end
local current = redis.call('HMGET', row, 'owner', 'generation', 'epoch')
local code, size = 'OK', 0
if not current[1] then
  code = 'UNKNOWN'
elseif current[1] == '' or current[1] ~= unit or current[2] ~= ARGV[2] or current[3] ~= ARGV[3] then
  code = 'STALE'
else
  if not full then size = tonumber(redis.call('HGET', info, 'size') or '0') end
  for i = 6, #ARGV, 2 do
    if not full then
      local old = redis.call('HGET', info, 'live:' .. ARGV[i])
      if old then size = size - #ARGV[i] - #old end
    end
    if ARGV[i + 1] ~= '' then size = size + #ARGV[i] + #ARGV[i + 1] end
  end
  if size > max_size then code = 'TOO_LARGE' end
end

if code == 'STALE' then
  redis.call('HINCRBY', KEYS[3], unit, 1)
  redis.call('EXPIRE', KEYS[3], 7 * 86400)
end
if code ~= 'OK' then return { code } end
if full then
  local kept = {}
  for _, field in ipairs({ 'basic', 'live:former', 'live:formerRoomMetadata' }) do
    local value = redis.call('HGET', info, field)
    if value then
      kept[#kept + 1] = field
      kept[#kept + 1] = value
    end
  end
  redis.call('DEL', info)
  if #kept > 0 then redis.call('HSET', info, unpack(kept)) end
end
for i = 6, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', info, 'live:' .. ARGV[i])
  else
    redis.call('HSET', info, 'live:' .. ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', info, 'size', string.format('%.0f', size))
return { code }
