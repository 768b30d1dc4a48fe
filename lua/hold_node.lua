-- hold_node: the operator's orders for a node, kept apart from its health and over its registrations (S11).
--
-- KEYS[1] node
-- KEYS[2] the operator's orders for it
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] cordon, uncordon, drain or undrain; uncordon undoes a drain too
-- ARGV[4] for drain: ms until its deadline
--
-- Returns {code, deadline}; deadline of a drain in Redis's ms, 0 when it does not drain
--   OK    the orders stand
--   GONE  there is no such node; nothing changed

-- include fleet
-- include settle
-- include pools

local hold_key, stem, id, what, within = KEYS[2], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if not within then return redis.error_reply('ERR hold_node: not a number') end
local node = redis.call('EXISTS', KEYS[1]) == 1 and stand_of(node_of(stem, id))
if not node then return { 'GONE', '0' } end

local now = clock()
if what == 'cordon' then
  redis.call('HSET', hold_key, 'cordoned', '1')
elseif what == 'drain' then
  redis.call('HSET', hold_key, 'drain_until_ms', whole(now + within))
  redis.call('ZADD', stem .. 'node:draining', whole(now + within), id)
else
  redis.call('HDEL', hold_key, 'drain_until_ms')
  redis.call('ZREM', stem .. 'node:draining', id)
  if what == 'uncordon' then redis.call('HDEL', hold_key, 'cordoned') end
end
local hold = redis.call('HMGET', hold_key, 'cordoned', 'drain_until_ms')
node.hold = hold[2] and 'draining' or hold[1] and 'cordoned' or ''
redis.call('HSET', node.key, 'hold', node.hold)
settle(stem, node, purge(stem, node, now))
redis.call('PUBLISH', stem .. 'node:updated', id)
return { 'OK', hold[2] or '0' }
