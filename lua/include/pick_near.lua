-- Chooses the less loaded of two random nodes at the nearest place. Part of include pick.
-- include pair
-- include located
-- include score

-- at_rank returns the node at a rank of an index of places.
local function at_rank(index, rank)
  rank = string.format('%d', rank)
  return string.match(redis.call('ZRANGE', index, rank, rank)[1], '\1([^\1]*)$')
end

for place in string.gmatch(places, '[^\n]+') do
  local from, to, counts, n = '[' .. place, '(' .. place .. '\255', {}, 0
  for i = 1, #classes do
    counts[i] = redis.call('ZLEXCOUNT', class_key(want.stem, classes[i], 'places'), from, to)
    n = n + counts[i]
  end
  if n > 0 then
    local i, j = pair(random, n)
    local ci, ri = located(counts, i)
    local index = class_key(want.stem, classes[ci], 'places')
    local start = redis.call('ZLEXCOUNT', index, '-', '(' .. place)
    local one, other = at_rank(index, start + ri), nil
    if i ~= j then
      local cj, rj = located(counts, j)
      if cj ~= ci then
        index = class_key(want.stem, classes[cj], 'places')
        start = redis.call('ZLEXCOUNT', index, '-', '(' .. place)
      end
      other = at_rank(index, start + rj)
      local load = score_of(redis.call('ZSCORE', class_key(want.stem, classes[ci], 'free'), one)) or 0
      local other_load = score_of(redis.call('ZSCORE', class_key(want.stem, classes[cj], 'free'), other)) or 0
      if other_load < load then one, other = other, one end
    end
    node, leases = usable(want, one)
    if not node and other then node, leases = usable(want, other) end
    if not node then
-- include pick_at_place
    end
  end
  if node then break end
end
