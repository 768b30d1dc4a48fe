-- The strategy locality. Part of include choose.

-- near returns the less loaded of two random nodes at a place.
local function near(want, classes, place)
  local from, to, counts, n = '[' .. place, '(' .. place .. '\255', {}, 0
  for i, class in ipairs(classes) do
    counts[i] = redis.call('ZLEXCOUNT', class_key(want.stem, class, 'places'), from, to)
    n = n + counts[i]
  end
  if n == 0 then return nil end
  local function at(rank)
    local c, r = located(counts, rank)
    local places = class_key(want.stem, classes[c], 'places')
    r = r + redis.call('ZLEXCOUNT', places, '-', '(' .. place)
    local id = string.match(redis.call('ZRANGE', places, r, r)[1], '\1([^\1]*)$')
    return id, score_of(redis.call('ZSCORE', class_key(want.stem, classes[c], 'free'), id)) or 0
  end
  local i, j = pair(want, n)
  local one, load = at(i)
  local other, other_load = at(j)
  if other_load < load then one, other = other, one end
  local node = usable(want, one) or usable(want, other)
  if node then return node end
  local unfit = 0
  for c, class in ipairs(classes) do
    for offset = 0, counts[c] - 1, 16 do
      for _, member in ipairs(redis.call('ZRANGEBYLEX', class_key(want.stem, class, 'places'), from, to, 'LIMIT', offset, 16)) do
        local reason
        node, reason = usable(want, string.match(member, '\1([^\1]*)$'))
        if node then return node end
        if reason ~= 'excluded' then unfit = unfit + 1 end
        if unfit >= MAX_UNFIT then return nil end
      end
    end
  end
  return nil
end
