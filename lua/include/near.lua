-- near takes the less loaded of two random nodes at a place: see include choose.
local function near(want, free, place)
  local places = pool_key(want.stem, want.pool, 'places')
  local from, to = '[' .. place, '(' .. place .. '\255'
  local n = redis.call('ZLEXCOUNT', places, from, to)
  if n == 0 then return nil end
  local start, ids = redis.call('ZLEXCOUNT', places, '-', '(' .. place), {}
  for _, rank in ipairs(n > 1 and { pair(want, n) } or { 0 }) do
    rank = whole(start + rank)
    ids[#ids + 1] = string.match(redis.call('ZRANGE', places, rank, rank)[1], '\1([^\1]*)$')
  end
  if ids[2] and (tonumber(redis.call('ZSCORE', free, ids[2])) or 0) < (tonumber(redis.call('ZSCORE', free, ids[1])) or 0) then
    ids[1], ids[2] = ids[2], ids[1]
  end
  local node = usable(want, ids[1]) or ids[2] and usable(want, ids[2])
  if node then return node end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', places, from, to, 'LIMIT', 0, MOST)) do
    node = usable(want, string.match(member, '\1([^\1]*)$'))
    if node then return node end
  end
  return nil
end
