-- Chooses the first usable node of a location, between the bounds `from` and `to`. Part of include pick_near.
-- include limits
local unfit = 0
for _, at_class in ipairs(classes) do
  local min, found = from, nil
  while not node and unfit < MAX_UNFIT do
    found = redis.call('ZRANGEBYLEX', class_key(stem, at_class, 'locations'), min, to, 'LIMIT', 0, 16)
    for _, at in ipairs(found) do
      if node or unfit >= MAX_UNFIT then break end
      local id = string.match(at, '\1([^\1]*)$')
-- include try
      if reason ~= 'excluded' then unfit = unfit + 1 end
      min = '(' .. at
    end
    if #found < 16 then break end
  end
end
