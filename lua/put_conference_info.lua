-- put_conference_info: the data proxy's only way to write. It takes a conference's live information from its owner alone:
-- whoever has another generation or epoch is stale, is refused, and is counted (C20).
--
-- KEYS[1]  row, as in put_conference
-- KEYS[2]  information, as in put_conference
-- KEYS[3]  refused messages by unit
-- ARGV[1]  unit that writes
-- ARGV[2]  its generation
-- ARGV[3]  the epoch it was told
-- ARGV[4]  1 when this replaces all live information
-- ARGV[5]  most bytes of live information
-- ARGV[6…] a field's name and its JSON, one after the other; '' for one that goes
--
-- Returns {code}
--   OK         written
--   STALE      not the owner's; counted, nothing else changed
--   UNKNOWN    there is no such conference; nothing changed
--   TOO_LARGE  there would be too much; nothing changed

local row, info, unit, full, most = KEYS[1], KEYS[2], ARGV[1], ARGV[4] == '1', tonumber(ARGV[5])
if not most then return redis.error_reply('ERR put_conference_info: not a number') end
local is = redis.call('HMGET', row, 'owner', 'generation', 'epoch')
local code, size = 'OK', 0
if not is[1] then
  code = 'UNKNOWN'
elseif is[1] == '' or is[1] ~= unit or is[2] ~= ARGV[2] or is[3] ~= ARGV[3] then
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
  if size > most then code = 'TOO_LARGE' end
end

if code == 'STALE' then redis.call('HINCRBY', KEYS[3], unit, 1) end
if code ~= 'OK' then return { code } end
if full then
  local basic = redis.call('HGET', info, 'basic')
  redis.call('DEL', info)
  if basic then redis.call('HSET', info, 'basic', basic) end
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
