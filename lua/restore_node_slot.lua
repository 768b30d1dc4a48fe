-- restore_node_slot: hold a slot of one node for work that it runs already, also when the node is full or Redis had lost the
-- slot: counting the work keeps other work away. Idempotent.
--
-- KEYS[1] its slots
-- KEYS[2] assignments by lease
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] generation
-- ARGV[4] lease id
-- ARGV[5] ms from now for which the slot is held
-- ARGV[6] pool
--
-- Returns {code}
--   OK    held
--   GONE  the node is unknown, dead, or another generation; nothing changed

-- include fleet
-- include settle

local slots, given, stem, id, lease, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[5])
if not ttl then return redis.error_reply('ERR restore_node_slot: not a number') end
local node = state_of(node_of(stem, id))
if not node or node.state == 'dead' or node.generation ~= ARGV[3] then return { 'GONE' } end

local now = clock()
redis.call('ZADD', slots, now + ttl, lease)
redis.call('HSETNX', given, lease, ARGV[6] .. '\n' .. id .. '\n' .. node.generation .. '\n')
settle(stem, node, purge(stem, node, now))
return { 'OK' }
