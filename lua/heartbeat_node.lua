-- heartbeat_node: take a heartbeat of a node, with its load. The cost depends on the node's pools, not on the size of the
-- fleet.
--
-- KEYS[1]  node
-- KEYS[2]  operator settings of the node
-- ARGV[1]  stem of the scheduler's keys
-- ARGV[2]  node id
-- ARGV[3]  generation
-- ARGV[4]  cpu, 0-100
-- ARGV[5]  gpu, 0-100; '' when it is not known
-- ARGV[6]  memory, 0-100
-- ARGV[7]  current jobs
-- ARGV[8]  active workflows
-- ARGV[9]  latency in ms
-- ARGV[10] what the load has beside cpu and work: memory and gpu, weighted
-- ARGV[11] random whole number below 1000
-- ARGV[12] ms of grace to open where Redis may have lost leases
-- ARGV[13] last epoch of the guard that the caller has seen
--
-- Returns {code, kind, cordoned, drain until, handed}: 1 or '', and Redis's ms or ''; handed: waiters whose workflows the caller
-- has to signal
--   OK          taken
--   REREGISTER  unknown, forgotten, dead or superseded generation: nothing changed

-- include fleet
-- include settle
-- include pools
-- include waiters

local JITTER = 5 -- points of load within which reports are treated as equal: samples of idle hosts differ by that

local MAX_EACH = 100000 -- the largest load that one piece of work may seem to have, in thousandths

local key = KEYS[1]
local stem, id, generation = ARGV[1], ARGV[2], ARGV[3]
local cpu, more_usage = tonumber(ARGV[4]), tonumber(ARGV[10])
local jobs, workflows, random = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[11])
local open_grace, known = tonumber(ARGV[12]), tonumber(ARGV[13])
if not (cpu and more_usage and jobs and workflows and random and open_grace and known) then return redis.error_reply('ERR heartbeat_node: not a number') end
local node = state_of(node_of(stem, id))
if not node or node.lost or node.generation ~= generation or node.state == 'dead' then return { 'REREGISTER', '', '', '', {} } end

local now = clock()
local leases = purge(stem, node, now)
local more = redis.call('HMGET', key, 'refreshed_at_ms', 'kind')
local refreshed, kind = tonumber(more[1]), more[2]
-- Nearly equal reports get a random order: otherwise all work that ends before the next report would go to the node whose
-- sample was lower by one percent.
node.base = math.floor(1000 * (cpu + more_usage) + 0.5) + JITTER * random
node.active, node.seen = math.max(jobs, workflows), leases
if node.active > 0 then -- one sample says little
  local each = math.min(math.floor(node.base / node.active), MAX_EACH)
  node.each = node.each == 0 and each or math.floor((3 * node.each + each) / 4)
end
local suspect = node.state == 'suspect'
if suspect then
  node.state = 'ready'
  redis.call('ZREM', stem .. 'node:suspects:' .. kind, id)
end
if now - refreshed > LIFETIME * 250 then
  refreshed = now
  -- A release that does not know services may have moved it to a class without them.
  move(stem, node, lines(pools_of_class(stem, node.class)), leases, now)
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
-- include announce
  announce(stem, id, 'ready')
else
  redis.call('PUBLISH', stem .. 'node:updated', id)
end
local stored = node.cordon ~= '' and redis.call('HMGET', KEYS[2], 'cordoned', 'drain_until_ms') or {}
return { 'OK', kind, stored[1] or '', stored[2] or '', serve_waiters(stem, node, now, open_grace, known) }
