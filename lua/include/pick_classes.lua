-- Reduces `classes`, those of the pool in which a node can be chosen, to those in which the services are available. Of more than
-- MAX_CLASSES it looks at that many from a random one on, and at further ones only until one of them is suitable. Part of include pick.
-- include limits
-- include lacks
local found, seen, from, n = classes, 0, 0, 0
if #found > MAX_CLASSES then
  n = redis.call('ZCARD', pool_key(want.stem, want.pool, 'open'))
  from = random % n
end
classes = {}
repeat
  if n > 0 then
    found = redis.call('ZRANGE', pool_key(want.stem, want.pool, 'open'), from, math.min(from + MAX_CLASSES, n) - 1)
    from, seen = (from + #found) % n, seen + #found
  end
  for i = 1, #found do
    if lacks(want, found[i]) then
      want.skipped.service_unavailable = want.skipped.service_unavailable or 1
    else
      classes[#classes + 1] = found[i]
    end
  end
until classes[1] or seen >= n
