-- cordon_node: replace the operator settings of a node, which are kept apart from its health and across registrations. The
-- node need not be registered.
--
-- KEYS[1] node
-- KEYS[2] operator settings of the node
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] 1 when it is cordoned
-- ARGV[4] ms until the deadline of its drain, 0 when it does not drain
--
-- Returns {code}
--   OK  written

-- include fleet
-- include settle
-- include pools

local cordon_key, stem, id, cordoned, within = KEYS[2], ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
if not within then return redis.error_reply('ERR cordon_node: not a number') end
local drains = within > 0
local node = state_of(node_of(stem, id))

local now = clock()
redis.call('DEL', cordon_key)
if cordoned then redis.call('HSET', cordon_key, 'cordoned', '1') end
if drains then redis.call('HSET', cordon_key, 'drain_until_ms', whole(now + within)) end
if not node then return { 'OK' } end

if drains then
  redis.call('ZADD', stem .. 'node:draining', whole(now + within), id)
else
  redis.call('ZREM', stem .. 'node:draining', id)
end
node.cordon = drains and 'draining' or cordoned and 'cordoned' or ''
write_state(stem, node, node.state, now)
redis.call('HSET', node.key, 'cordon', node.cordon)
settle(stem, node, purge(stem, node, now))
-- include announce
announce(stem, id, node.cordon ~= '' and node.cordon or node.state)
return { 'OK' }
