-- Chooses the node that follows the one which round-robin chose last in the pool: class by class, and within a class by place. Each pool
-- has its own order and its own last node, so nothing is stored for a node and a pool. Part of include pick.
local last = redis.call('GET', pool_key(stem, pool, 'turn')) or ''
local last_class, place = string.match(last, '^([^\2]*)\2(.*)$')
local following
local alike = last_class and #last_class == 41 and not string.find(services, '[+?]') -- its nodes have every service
if alike then -- most often the next one in the same class is suitable
  following = redis.call('ZRANGEBYLEX', class_key(stem, last_class, 'places'), '(' .. place, '+', 'LIMIT', '0', '1')[1]
  if following then
    local id = string.match(following, '\1([^\1]*)$')
-- include try
    place = following
    if node then position = last_class .. '\2' .. place end
  end
end
if not node then
-- include pick_behind
end
