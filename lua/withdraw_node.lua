-- withdraw_node: end a generation on request: the node leaves, or the operator removes it.
--
-- KEYS[1] node
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] generation, 0 for any
-- ARGV[4] reason: withdrawn or service_lost
--
-- Returns {code}
--   OK    ended; the outbox has a notice
--   GONE  unknown, dead already or another generation: nothing changed

-- include fleet
-- include settle
-- include pools

if not KEYS[1] then return redis.error_reply('ERR withdraw_node: no key') end
local stem, id, generation, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if reason ~= 'withdrawn' and reason ~= 'service_lost' then return redis.error_reply('ERR withdraw_node: no reason') end
local node = state_of(node_of(stem, id))
if not node or node.state == 'dead' or (generation ~= '0' and generation ~= node.generation) then return { 'GONE' } end
end_generation(stem, node, clock(), reason)
return { 'OK' }
