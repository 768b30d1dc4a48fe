-- The strategy round-robin. Part of include choose.

-- behind returns the first usable node of a class whose place is between two bounds, as those of ZRANGEBYLEX.
local function behind(want, class, min, max)
  local places, n = class_key(want.stem, class, 'places'), 1 -- most often the first one is suitable
  while want.unfit < MAX_UNFIT do
    local found = redis.call('ZRANGEBYLEX', places, min, max, 'LIMIT', 0, n)
    for _, place in ipairs(found) do
      local node, reason = usable(want, string.match(place, '\1([^\1]*)$'))
      if node then
        node.turn = class .. '\2' .. place
        return node
      end
      if reason ~= 'excluded' then want.unfit = want.unfit + 1 end
    end
    if #found < n then return nil end
    min, n = '(' .. found[n], 16
  end
  return nil
end

-- next_in_turn returns the usable node that follows the one which round-robin chose last in the pool: class by class, and within
-- a class by place. Each pool has its own order and its own last node, so nothing is stored for a node and a pool.
local function next_in_turn(want)
  local open, last = pool_key(want.stem, want.pool, 'open'), redis.call('GET', pool_key(want.stem, want.pool, 'turn')) or ''
  local class, place = string.match(last, '^([^\2]*)\2(.*)$')
  want.unfit = 0
  local node = class and suitable(want, class) and behind(want, class, '(' .. place, '+')
  local from = class and '(' .. class or '-'
  for _, to in ipairs({ '+', class and '(' .. class }) do -- the classes behind it, then those before it
    while not node do
      local found = redis.call('ZRANGEBYLEX', open, from, to, 'LIMIT', 0, MAX_CLASSES)
      for _, other in ipairs(found) do
        node = node or suitable(want, other) and behind(want, other, '-', '+')
      end
      if #found < MAX_CLASSES then break end
      from = '(' .. found[MAX_CLASSES]
    end
    from = '-'
  end
  return node or class and suitable(want, class) and behind(want, class, '-', '[' .. place) or nil
end
