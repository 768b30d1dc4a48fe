-- heartbeat_node: take a heartbeat of a node, with its load. The cost depends on the node's pools, not on the size of the
-- fleet.
--
-- KEYS[1]  node
-- KEYS[2]  operator settings of the node
-- ARGV[1]  stem of the scheduler's keys
-- ARGV[2]  node id
-- ARGV[3]  generation
-- ARGV[4]  cpu, 0-100
-- ARGV[5]  gpu, 0-100
-- ARGV[6]  memory, 0-100
-- ARGV[7]  current jobs
-- ARGV[8]  active workflows
-- ARGV[9]  latency in ms
-- ARGV[10] weight of memory in the load
-- ARGV[11] random whole number below 1000
--
-- Returns {code, kind, cordoned, drain until}: 1 or '', and Redis's ms or ''
--   OK          taken
--   REREGISTER  unknown, dead or superseded generation: nothing changed

-- include fleet
-- include settle
-- include pools

local JITTER = 5 -- points of load within which reports are treated as equal: samples of idle hosts differ by that

local key = KEYS[1]
local stem, id, generation = ARGV[1], ARGV[2], ARGV[3]
local cpu, memory, weight = tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[10])
local jobs, workflows, random = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[11])
if not (cpu and memory and weight and jobs and workflows and random) then return redis.error_reply('ERR heartbeat_node: not a number') end
local node = state_of(node_of(stem, id))
if not node or node.generation ~= generation or node.state == 'dead' then return { 'REREGISTER', '', '', '' } end

local now = clock()
local leases = purge(stem, node, now)
local more = redis.call('HMGET', key, 'refreshed_at_ms', 'kind')
local refreshed, kind = tonumber(more[1]), more[2]
-- Nearly equal reports get a random order: otherwise all work that ends before the next report would go to the node whose
-- sample was lower by one percent.
node.base = math.floor(1000 * (cpu + memory * weight) + 0.5) + JITTER * random
node.active = math.max(jobs, workflows)
local suspect = node.state == 'suspect'
if suspect then
  node.state = 'ready'
  redis.call('ZREM', stem .. 'node:suspects:' .. kind, id)
end
if now - refreshed > LIFETIME * 250 then
  refreshed = now
  refresh_pools(stem, lines(node.pools))
  redis.call('EXPIRE', key .. ':pools', LIFETIME)
  redis.call('EXPIRE', stem .. 'node:loads', LIFETIME)
end
redis.call('HSET', key, 'state', 'ready', 'cpu_usage', ARGV[4], 'gpu_usage', ARGV[5], 'memory_usage', ARGV[6],
  'current_jobs', ARGV[7], 'active_workflows', ARGV[8], 'latency_ms', ARGV[9],
  'base', whole(node.base),
  'last_heartbeat_ms', now, 'updated_at_ms', now, 'refreshed_at_ms', refreshed)
redis.call('EXPIRE', key, LIFETIME)
redis.call('ZADD', stem .. 'node:beats:' .. kind, whole(now), id)
settle(stem, node, leases)
write_load(stem, node, leases, now, table.concat({ ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9] }, '\n'))
if suspect then
  announce(stem, id)
else
  redis.call('PUBLISH', stem .. 'node:updated', id)
end
local hold = node.hold ~= '' and redis.call('HMGET', KEYS[2], 'cordoned', 'drain_until_ms') or {}
return { 'OK', kind, hold[1] or '', hold[2] or '' }
