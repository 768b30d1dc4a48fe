-- withdraw_node: end a generation on purpose: the node leaves, or the operator removes it (L3).
--
-- KEYS[1] node
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] generation, 0 for whatever it is
--
-- Returns {code}
--   OK    ended; the outbox tells
--   GONE  unknown, dead already or another generation: nothing changed

-- include fleet
-- include settle
-- include pools

local stem, id, generation = ARGV[1], ARGV[2], ARGV[3]
local node = redis.call('EXISTS', KEYS[1]) == 1 and stand_of(node_of(stem, id))
if not node or node.state == 'dead' or (generation ~= '0' and generation ~= node.generation) then return { 'GONE' } end
bury(stem, node, clock(), 'withdrawn')
return { 'OK' }
