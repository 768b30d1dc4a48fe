-- Chooses the first usable node behind `place` in `class`, unless no node is `following`, else in the other classes, else before it.
-- Part of include pick.
-- include limits
-- include lacks
local unfit = 0

-- behind reports whether it has chosen a node of a class, whose place is between two bounds, as those of ZRANGEBYLEX.
local function behind(other, min, max)
  if lacks(want, other) then
    want.skipped.service_unavailable = want.skipped.service_unavailable or 1
    return false
  end
  local places, limit = class_key(want.stem, other, 'places'), 1 -- most often the first one is suitable
  while unfit < MAX_UNFIT do
    local found = redis.call('ZRANGEBYLEX', places, min, max, 'LIMIT', 0, limit)
    for _, at in ipairs(found) do
      node, leases = usable(want, string.match(at, '\1([^\1]*)$'))
      if node then
        want.turn = other .. '\2' .. at
        return true
      end
      if leases ~= 'excluded' then unfit = unfit + 1 end
    end
    if #found < limit then return false end
    min, limit = '(' .. found[limit], 16
  end
  return false
end

local skips = class and #class == 41 and not following
if not class or skips or not behind(class, '(' .. place, '+') then
  local open, from = pool_key(want.stem, want.pool, 'open'), class and '(' .. class or '-'
  for _, to in ipairs({ '+', class and '(' .. class }) do -- the classes behind it, then those before it
    while not node do
      local found = redis.call('ZRANGEBYLEX', open, from, to, 'LIMIT', '0', '32')
      for _, other in ipairs(found) do
        if behind(other, '-', '+') then break end
      end
      if #found < MAX_CLASSES then break end
      from = '(' .. found[MAX_CLASSES]
    end
    from = '-'
  end
  if not node and class then behind(class, '-', '[' .. place) end
end
