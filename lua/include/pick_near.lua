-- Chooses the less loaded of two random nodes at the nearest location. Part of include pick.
for location in string.gmatch(locations, '[^\n]+') do
  local from, to, n, index, counts = '[' .. location, '(' .. location .. '\255', 0, nil, classes[2] and {}
  for c = 1, #classes do
    index = class_key(stem, classes[c], 'locations')
    local size = redis.call('ZLEXCOUNT', index, from, to)
    n = n + size
    if counts then counts[c] = size end
  end
  if n > 0 then
-- include pair
    local one_class, other_class, rank, other_rank, id, other = classes[1], classes[1], i, j, nil, nil
    if counts then
-- include located
      local ci, cj
      ci, rank = located(counts, i)
      cj, other_rank = located(counts, j)
      one_class, other_class = classes[ci], classes[cj]
      index = class_key(stem, one_class, 'locations')
    end
    local before_location = '(' .. location
    local start = redis.call('ZLEXCOUNT', index, '-', before_location)
    rank = whole(start + rank)
    id = string.match(redis.call('ZRANGE', index, rank, rank)[1], '\1([^\1]*)$')
    if i ~= j then
-- include score
      if other_class ~= one_class then
        index = class_key(stem, other_class, 'locations')
        start = redis.call('ZLEXCOUNT', index, '-', before_location)
      end
      other_rank = whole(start + other_rank)
      other = string.match(redis.call('ZRANGE', index, other_rank, other_rank)[1], '\1([^\1]*)$')
      local load = score_of(redis.call('ZSCORE', class_key(stem, one_class, 'free'), id)) or 0
      local other_load = score_of(redis.call('ZSCORE', class_key(stem, other_class, 'free'), other)) or 0
      if other_load < load then id, other = other, id end
    end
-- include try
    if not node and other then
      id = other
-- include try
    end
    if not node then
-- include pick_at_location
    end
  end
  if node then break end
end
