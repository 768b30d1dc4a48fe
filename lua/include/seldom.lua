-- What few choices of a node need: see include choose.

-- near takes the less loaded of two random nodes at a place.
local function near(want, free, place)
  local places = pool_key(want.stem, want.pool, 'places')
  local from, to = '[' .. place, '(' .. place .. '\255'
  local n = redis.call('ZLEXCOUNT', places, from, to)
  if n == 0 then return nil end
  local start = redis.call('ZRANK', places, redis.call('ZRANGEBYLEX', places, from, to, 'LIMIT', 0, 1)[1])
  local i, j = pair(want, n)
  local ids = {}
  for _, rank in ipairs({ start + i, start + j }) do
    ids[#ids + 1] = string.match(redis.call('ZRANGE', places, rank, rank)[1], '\1([^\1]*)$')
  end
  if (tonumber(redis.call('ZSCORE', free, ids[2])) or 0) < (tonumber(redis.call('ZSCORE', free, ids[1])) or 0) then
    ids[1], ids[2] = ids[2], ids[1]
  end
  local node = usable(want, ids[1]) or usable(want, ids[2])
  if node then return node end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', places, from, to, 'LIMIT', 0, MOST)) do
    node = usable(want, string.match(member, '\1([^\1]*)$'))
    if node then return node end
  end
  return nil
end

-- passed counts for whom it could not be, and on failure everybody; it answers reasons and numbers in turn.
local function passed(want, failed)
  local reasons = {}
  if failed then
    local all, kept = redis.call('HGETALL', pool_key(want.stem, want.pool, 'state')), want.skipped
    want.skipped = { excluded = kept.excluded, service_unavailable = kept.service_unavailable, not_in_pool = kept.not_in_pool }
    for i = 1, #all, 2 do
      if all[i] ~= 'turn' and all[i] ~= 'free' and tonumber(all[i + 1]) > 0 then want.skipped[all[i]] = tonumber(all[i + 1]) end
    end
    if #want.missing > 0 then want.skipped.capability_missing = 1 end
  end
  for reason, n in pairs(want.skipped) do
    redis.call('HINCRBY', want.stem .. 'stats:excludes', want.pool .. '|' .. reason, whole(n))
    reasons[#reasons + 1] = reason
    reasons[#reasons + 1] = whole(n)
  end
  return reasons
end

-- missing names the capabilities of a list, one per line, that no living node has.
local function missing(stem, required)
  local asked, out = {}, {}
  for c in string.gmatch(required, '[^\n]+') do asked[#asked + 1] = c end
  if #asked == 0 then return out end
  for i, n in ipairs(redis.call('HMGET', stem .. 'capabilities', unpack(asked))) do
    if not n then out[#out + 1] = asked[i] end
  end
  return out
end
