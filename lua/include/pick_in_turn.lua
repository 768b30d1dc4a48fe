-- Chooses the node that follows the one which round-robin chose last in the pool: class by class, and within a class by place. Each pool
-- has its own order and its own last node, so nothing is stored for a node and a pool. Part of include pick.
local last = redis.call('GET', pool_key(want.stem, want.pool, 'turn')) or ''
local class, place = string.match(last, '^([^\2]*)\2(.*)$')
local following
if class and #class == 41 then -- most often the next one in the same class is suitable
  following = redis.call('ZRANGEBYLEX', class_key(want.stem, class, 'places'), '(' .. place, '+', 'LIMIT', '0', '1')[1]
  if following then
    node, leases = usable(want, string.match(following, '\1([^\1]*)$'))
    place = following
    if node then want.turn = class .. '\2' .. place end
  end
end
if not node then
-- include pick_behind
end
