-- Chooses the first usable node behind `location` in `last_class`, unless none is `following`, else in the other classes, else before it.
-- Part of include pick_round_robin.
-- include limits
-- include lacks
local unfit = 0

-- behind reports whether it has chosen a node of a class, whose location is between two bounds, as those of ZRANGEBYLEX.
local function behind(in_class, lower, upper)
  local _, why_not = lacks(services, in_class)
  if why_not then
    skipped[why_not] = skipped[why_not] or 1
    return false
  end
  local limit = 1 -- most often the first one is suitable
  while unfit < MAX_UNFIT do
    local found = redis.call('ZRANGEBYLEX', class_key(stem, in_class, 'locations'), lower, upper, 'LIMIT', 0, limit)
    for _, at in ipairs(found) do
      local id = string.match(at, '\1([^\1]*)$')
-- include try
      if node then
        position = in_class .. '\2' .. at
        return true
      end
      if reason ~= 'excluded' then unfit = unfit + 1 end
    end
    if #found < limit then return false end
    lower, limit = '(' .. found[limit], 16
  end
  return false
end

local ended = alike and not following
if not last_class or ended or not behind(last_class, '(' .. location, '+') then
  local open, from = pool_key(stem, pool, 'open'), last_class and '(' .. last_class or '-'
  for _, to in ipairs({ '+', last_class and '(' .. last_class }) do -- the classes behind it, then those before it
    while not node do
      local found = redis.call('ZRANGEBYLEX', open, from, to, 'LIMIT', 0, MAX_CLASSES)
      for _, in_class in ipairs(found) do
        if behind(in_class, '-', '+') then break end
      end
      if #found < MAX_CLASSES then break end
      from = '(' .. found[MAX_CLASSES]
    end
    from = '-'
  end
  if not node and last_class then behind(last_class, '-', '[' .. location) end
end
