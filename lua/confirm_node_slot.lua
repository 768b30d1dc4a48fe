-- confirm_node_slot: hold a taken slot for longer, such as until the job's timeout. After Redis lost data it restores the
-- slot of its holder, within the grace or the time in which the node is unsure, also for the previous generation of the
-- node's process.
--
-- KEYS[1] node
-- KEYS[2] its slots
-- KEYS[3] guard
-- KEYS[4] assignments by lease
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] generation
-- ARGV[4] lease id
-- ARGV[5] ms from now for which the slot is held
-- ARGV[6] pool and strategy of the assignment, one per line, to be restored with the slot; '' for jobs
-- ARGV[7] ms of grace to open where Redis may have lost leases
-- ARGV[8] last epoch of the guard that the caller has seen
--
-- Returns {code, generation}: the node's current generation
--   OK    held
--   LOST  the lease expired or was released: another lease may have the slot
--   GONE  the node is unknown, dead, or another generation, and its slots are gone

-- include guard
-- include fleet
-- include settle

local key, slots, guard, given = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local stem, id, generation, lease, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local open, known = tonumber(ARGV[7]), tonumber(ARGV[8])
if not (ttl and open and known) then return redis.error_reply('ERR confirm_node_slot: not a number') end
local node = state_of(node_of(stem, id))
if not node or node.state == 'dead' then return { 'GONE', '0' } end
local now = clock()
local wait = grace_left(guard, now, known, true)
local forgotten = wait ~= 0 or node.unsure > now
if node.generation ~= generation and not (forgotten and redis.call('HGET', key, 'previous') == generation) then
  return { 'GONE', node.generation }
end
local expiry = redis.call('ZSCORE', slots, lease)
if not forgotten and not (expiry and tonumber(expiry) > now) then return { 'LOST', node.generation } end

if not wait then grace(guard, now, open, known) end
redis.call('ZADD', slots, now + ttl, lease)
if not expiry and ARGV[6] ~= '' then
  local pool, strategy = string.match(ARGV[6], '^([^\n]*)\n(.*)$')
  redis.call('HSET', given, lease, pool .. '\n' .. id .. '\n' .. node.generation .. '\n' .. strategy)
end
if not expiry then settle(stem, node, purge(stem, node, now)) end
return { 'OK', node.generation }
