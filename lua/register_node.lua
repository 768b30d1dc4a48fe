-- register_node: register a node's process with what it can do.
-- The same incarnation keeps its generation when it registers again, unless that was declared dead: death is final.
-- Another incarnation gets a higher generation, and the leases of the old one are deleted. Generations are at least the
-- server's milliseconds, so that they do not decrease in a Redis that lost its data. A previous generation that Redis
-- does not know was lost with its leases: for a time the node gets no new ones, so that they can be restored.
--
-- KEYS[1]  node
-- KEYS[2]  operator settings of the node
-- KEYS[3]  heartbeats of its kind
-- KEYS[4]  suspects of its kind
-- KEYS[5]  dead nodes
-- ARGV[1]  stem of the scheduler's keys
-- ARGV[2]  node id
-- ARGV[3]  kind
-- ARGV[4]  incarnation: host
-- ARGV[5]  incarnation: process id
-- ARGV[6]  incarnation: start in ms by the node's clock
-- ARGV[7]  hostname
-- ARGV[8]  zone
-- ARGV[9]  capabilities, one per line
-- ARGV[10] slots
-- ARGV[11] generation that the process had before, 0 for none
-- ARGV[12] 1 to put the registration into the outbox, also when the generation stays the same
-- ARGV[13] ms for which a node whose leases were lost gets no new ones
-- ARGV[14] ms of grace to open where Redis may have lost leases
-- ARGV[15] last epoch of the guard that the caller has seen
-- ARGV[16] where participants reach a media unit, '' for none
-- ARGV[17] id of its API key, '' for none
-- ARGV[18] services that it declares, one per line, in byte order
--
-- Returns {code, generation, pools, handed}; pools one per line; handed: waiters whose workflows the caller has to signal
--   OK      registered as a new generation
--   EXISTS  the same incarnation as before, updated
--   STALE   a later incarnation of the same host is registered; nothing changed

-- include fleet
-- include settle
-- include pools
-- include waiters

-- median returns a node with the median load of those that can be chosen in the first pool that has any. A node that has not
-- reported its load yet is treated as loaded like that: an idle node would get all new work.
local function median(stem, pools)
  for _, pool in ipairs(pools) do
    for _, class in ipairs(redis.call('ZRANGE', pool_key(stem, pool, 'open'), 0, 0)) do
      local free = class_key(stem, class, 'free')
      local rank = math.floor(redis.call('ZCARD', free) / 2)
      return node_of(stem, redis.call('ZRANGE', free, rank, rank)[1])
    end
  end
  return nil
end

local key, cordon_key, beats, suspects, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local stem, id, kind, host, pid, started = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local hostname, zone, capabilities, slots, before = ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11]
local unsure, open_grace, known = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
if not (slots and tonumber(started) and tonumber(before) and unsure and open_grace and known) then return redis.error_reply('ERR register_node: not a number') end

local node, registered = state_of(node_of(stem, id)), spec_of(stem, id)
local same = node and registered.host == host and registered.pid == pid and registered.started == started and registered.kind == kind
local alive = node and node.state ~= 'dead'
local forgotten = tonumber(before) > (node and tonumber(node.generation) or 0)
if alive and not same and registered.host == host and tonumber(started) < tonumber(registered.started) then
  return { 'STALE', node.generation, pools_of_class(stem, node.class), {} }
end

local now = clock()
local code, generation = 'OK', now
if same and alive and not forgotten then
  code, generation = 'EXISTS', tonumber(node.generation)
else
  if alive then end_generation(stem, node, now, 'superseded') end
  if node then generation = math.max(tonumber(node.generation) + 1, now) end
end

local pools = pools_of(stem, kind, zone, capabilities)
local stored = redis.call('HMGET', cordon_key, 'cordoned', 'drain_until_ms')
local cordon = stored[2] and 'draining' or stored[1] and 'cordoned' or ''
if code == 'OK' then
  if not node then
    node = { id = id, stem = stem, key = key, slots = stem .. 'node:slots:' .. id, out = '', class = '', zone = zone, host = hostname }
  end
  clear_slots(stem, node.slots)
  local like = median(stem, pools) or { base = 0, each = 0 }
  node.base, node.active, node.each, node.seen, node.unsure = like.base, 0, like.each, 0, forgotten and now + unsure or 0
  redis.call('HSET', key, 'base', whole(node.base),
    'cpu_usage', '0', 'gpu_usage', '', 'memory_usage', '0', 'current_jobs', '0', 'active_workflows', '0',
    'latency_ms', '0', 'registered_at_ms', whole(now), 'previous', before,
    'unsure_until', whole(node.unsure))
end
if node.zone ~= zone or node.host ~= hostname then
  move(stem, node, {}, 0, now) -- its location has changed
end
local counted_before = code == 'EXISTS' and registered.capabilities or ''
write_spec(stem, id, {
  kind = kind, host = host, pid = pid, started = started, hostname = hostname, zone = zone, capabilities = capabilities,
})
if ARGV[18] ~= '' then
  redis.call('HSET', stem .. 'node:services', id, ARGV[18])
else
  redis.call('HDEL', stem .. 'node:services', id)
end
redis.call('HSET', key, 'node_id', id, 'kind', kind, 'generation', whole(generation),
  'host', host, 'pid', pid, 'started_at_ms', started, 'hostname', hostname, 'zone', zone,
  'capability_lines', capabilities, 'max_concurrent_jobs', whole(slots), 'state', 'ready', 'online', '1',
  'cordon', cordon, 'last_heartbeat_ms', whole(now), 'updated_at_ms', whole(now), 'refreshed_at_ms', whole(now),
  'client_url', ARGV[16], 'key_id', ARGV[17], 'service_lines', ARGV[18])
redis.call('HSETNX', key, 'registered_at_ms', whole(now))
redis.call('EXPIRE', key, LIFETIME)
redis.call('HDEL', key, 'departure')
redis.call('ZADD', beats, whole(now), id)
redis.call('ZREM', suspects, id)
redis.call('ZREM', dead, id)
node.generation, node.state, node.cordon, node.max, node.zone, node.host = whole(generation), 'ready', cordon, slots, zone, hostname
count_capabilities(stem, counted_before, '-1')
count_capabilities(stem, capabilities, '1')
remember_capabilities(stem, capabilities, now)

local leases = purge(stem, node, now)
settle(stem, node, leases)
redis.call('HSET', key, 'unavailable_until', whole(remark(stem, node, now))) -- marks outlast registrations
move(stem, node, pools, leases, now)
if stored[2] then redis.call('ZADD', stem .. 'node:draining', stored[2], id) end
if ARGV[12] == '1' then notify(stem, node, now, 'registered') end
if code == 'OK' then
  write_load(stem, node, leases, now, '0\n\n0\n0\n0\n0')
  redis.call('EXPIRE', stem .. 'node:loads', LIFETIME)
end
-- include announce
announce(stem, id, code == 'OK' and (cordon ~= '' and cordon or 'ready') or nil)
return { code, whole(generation), table.concat(pools, '\n'), serve_waiters(stem, node, now, open_grace, known) }
