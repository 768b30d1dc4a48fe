-- Sets `classes` to MAX_CLASSES of the pool's from a random one on, or, where all of them lack a service, to the next ones.
-- Part of include pick_classes.
local open = pool_key(stem, pool, 'open')
local n, seen = redis.call('ZCARD', open), 0
local from, suitable = random % n, false
repeat
  classes = redis.call('ZRANGE', open, from, math.min(from + MAX_CLASSES, n) - 1)
  from, seen = (from + #classes) % n, seen + #classes
  for _, class in ipairs(classes) do suitable = suitable or not lacks(services, class) end
until suitable or seen >= n
