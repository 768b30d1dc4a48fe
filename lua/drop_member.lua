-- drop_member: remove a node from the indexes of a class in which it is not registered, and count the class again. An entry
-- like that remains where keys were lost, so only the reconciliation removes it. The cost is that of all nodes of the class.
--
-- KEYS[1] rows of the nodes
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] class
--
-- Returns {code}
--   OK      the indexes of the class do not have the node
--   EXISTS  the node is registered in the class: nothing changed

-- include fleet
-- include settle

if not KEYS[1] then return redis.error_reply('ERR drop_member: no key') end
local stem, id, class = ARGV[1], ARGV[2], ARGV[3]
if id == '' or class == '' then return redis.error_reply('ERR drop_member: no node or class') end
local registered = node_of(stem, id)
if registered and registered.class == class then return { 'EXISTS' } end

local node = { id = id, stem = stem, class = class, out = '', zone = '', host = '' }
for _, place in ipairs(redis.call('ZRANGE', class_key(stem, class, 'places'), 0, -1)) do
  local zone, host, of = string.match(place, '^([^\1]*)\1([^\1]*)\1([^\1]*)$')
  if of == id then node.zone, node.host = zone, host end
end
hide(stem, node) -- leave_class does not where the class's nodes have lost it
leave_class(stem, node)

-- The reason for which the node was counted is not known: all are counted again.
local state, numbers = class_key(stem, class, 'state'), {}
for _, other in ipairs(redis.call('SMEMBERS', class_key(stem, class, 'nodes'))) do
  local member = node_of(stem, other)
  if member and member.class == class then numbers[counted(member.out)] = (numbers[counted(member.out)] or 0) + 1 end
end
redis.call('DEL', state)
for reason, n in pairs(numbers) do redis.call('HSET', state, reason, whole(n)) end
return { 'OK' }
