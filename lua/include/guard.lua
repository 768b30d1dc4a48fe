-- The grace after Redis may have lost leases.
-- include grace_left

-- grace returns the same; where leases may have been lost it opens a grace of the given time.
local function grace(guard, now, time, known, nodes)
  local left, id, epoch = grace_left(guard, now, known, nodes)
  if left then return left end
-- include format
  redis.call('HSET', guard, 'server', id, 'grace', string.format('%.0f', now + time), 'epoch', string.format('%.0f', epoch),
    'format', FORMAT)
  return time
end
