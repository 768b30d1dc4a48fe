-- release_node_slot: release a slot of a node. Idempotent: an unknown lease is not an error.
--
-- KEYS[1] its slots
-- KEYS[2] assignments by lease
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] lease id
-- ARGV[4] ms of grace to open where Redis may have lost leases
-- ARGV[5] last epoch of the guard that the caller has seen
--
-- Returns {code, held, handed}
--   RELEASED  held: 1 when the lease held a slot and had not expired; handed: waiters whose workflows the caller has to signal

-- include fleet
-- include node

local stem, id, lease, open_grace, known = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if not (open_grace and known) then return redis.error_reply('ERR release_node_slot: not a number') end
local handed = {}
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
-- include waiters
    handed = serve_waiters(stem, node, now, open_grace, known)
  end
end
return { 'RELEASED', expiry > now and 1 or 0, handed }
