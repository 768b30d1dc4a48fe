-- release_node_slot: release a slot of a node. Idempotent: an unknown lease is not an error.
--
-- KEYS[1] its slots
-- KEYS[2] assignments by lease
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] lease id
--
-- Returns {code, held}
--   RELEASED  held: 1 when the lease held a slot and had not expired

-- include fleet

local stem, id, lease = ARGV[1], ARGV[2], ARGV[3]
local now = clock()
local expiry = tonumber(redis.call('ZSCORE', KEYS[1], lease) or '0')
redis.call('HDEL', KEYS[2], lease)
if redis.call('ZREM', KEYS[1], lease) == 1 then
  local node = node_of(stem, id)
  if node and node.out == '' then
    update_load(stem, node, leases_of(node, now))
  elseif node then
-- include settle
    settle(stem, node, purge(stem, node, now))
  end
end
return { 'RELEASED', expiry > now and 1 or 0 }
