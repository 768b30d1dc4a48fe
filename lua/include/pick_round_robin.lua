-- Chooses the node that follows the one which round-robin chose last in the pool: class by class, and within a class by location. Each pool
-- has its own order and its own last node, so nothing is stored for a node and a pool. Part of include pick.
local last = redis.call('GET', pool_key(stem, pool, 'rotation')) or ''
local last_class, location = string.match(last, '^([^\2]*)\2(.*)$')
local following
local alike = last_class and #last_class == 41 and not string.find(services, '[+?]') -- its nodes have every service
if alike then -- most often the next one in the same class is suitable
  following = redis.call('ZRANGEBYLEX', class_key(stem, last_class, 'locations'), '(' .. location, '+', 'LIMIT', '0', '1')[1]
  if following then
    local id = string.match(following, '\1([^\1]*)$')
-- include try
    location = following
    if node then position = last_class .. '\2' .. location end
  end
end
if not node then
-- include pick_behind
end
