-- Chooses the first usable node of a place, between the bounds `from` and `to`. Part of include pick.
-- include limits
local unfit = 0
for c, class in ipairs(classes) do
  for offset = 0, counts[c] - 1, 16 do
    local found = redis.call('ZRANGEBYLEX', class_key(want.stem, class, 'places'), from, to, 'LIMIT', offset, 16)
    for _, member in ipairs(found) do
      if node or unfit >= MAX_UNFIT then break end
      node, leases = usable(want, string.match(member, '\1([^\1]*)$'))
      if leases ~= 'excluded' then unfit = unfit + 1 end
    end
    if node or unfit >= MAX_UNFIT then break end
  end
end
