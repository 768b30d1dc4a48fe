-- The pools of a node, and its moves between them. Needs includes fleet and settle.
--   config:pools    hash  pool -> its definition as JSON
--   config:anchors  hash  capability -> the defined pools to be matched with nodes that have it, one per line;
--                         field '' for pools without a capability

local LIFETIME = 3600 -- s, of the keys of nodes and pools that others read; heartbeats refresh it

local function lines(list)
  local out = {}
  for line in string.gmatch(list or '', '[^\n]+') do out[#out + 1] = line end
  return out
end

local function has_line(list, line)
  return string.find('\n' .. list .. '\n', '\n' .. line .. '\n', 1, true) ~= nil
end

-- selects reports whether the pool's definition matches the node.
local function selects(pool, kind, zone, capabilities)
  if pool.kind and pool.kind ~= '' and pool.kind ~= kind then return false end
  if pool.zone and pool.zone ~= '' and pool.zone ~= zone then return false end
  if type(pool.capabilities) == 'table' then
    for _, c in ipairs(pool.capabilities) do
      if not has_line(capabilities, c) then return false end
    end
  end
  return true
end

-- pools_of returns the pools whose selectors match the node. A capability is a pool of its own unless a pool of that name
-- is defined.
local function pools_of(stem, kind, zone, capabilities)
  local asked, own = { '' }, lines(capabilities)
  for _, c in ipairs(own) do asked[#asked + 1] = c end
  local ids, seen, found = {}, {}, {}
  for _, list in ipairs(redis.call('HMGET', stem .. 'config:anchors', unpack(asked))) do
    for _, id in ipairs(lines(list or '')) do
      if not seen[id] then
        seen[id], ids[#ids + 1] = true, id
      end
    end
  end
  for _, c in ipairs(own) do
    if not seen[c] then
      seen[c], ids[#ids + 1] = true, c
    end
  end
  if #ids == 0 then return found end
  local defined = redis.call('HMGET', stem .. 'config:pools', unpack(ids))
  for i, id in ipairs(ids) do
    if not defined[i] then
      if has_line(capabilities, id) then found[#found + 1] = id end
    elseif selects(cjson.decode(defined[i]), kind, zone, capabilities) then
      found[#found + 1] = id
    end
  end
  table.sort(found)
  return found
end

-- refresh_pools keeps the sets of the node's pools, which others read.
local function refresh_pools(stem, node, pools)
  for _, pool in ipairs(pools) do
    redis.call('SADD', pool_key(stem, pool, 'members'), node.id)
    redis.call('EXPIRE', pool_key(stem, pool, 'members'), LIFETIME)
  end
  if #pools > 0 then
    redis.call('SADD', node.key .. ':pools', unpack(pools))
    redis.call('EXPIRE', node.key .. ':pools', LIFETIME)
  end
end

-- move moves the node from its old pools to the new ones and returns whether anything changed. Where the indexes have lost the
-- node they get it back. `new` is sorted.
local function move(stem, node, new, leases, now)
  state_of(node)
  local pools, old, keep = table.concat(new, '\n'), pools_of_class(stem, node.class), {}
  local changed, class = pools ~= old, class_of(pools, services_of(stem, node.id), (marks_of(stem, node.id, now)))
  if class ~= node.class then leave_class(stem, node) end
  for _, pool in ipairs(new) do keep[pool] = true end
  for _, pool in ipairs(lines(old)) do
    if not keep[pool] then redis.call('SREM', pool_key(stem, pool, 'members'), node.id) end
  end
  if changed then redis.call('DEL', node.key .. ':pools') end
  node.class = class
  join_class(stem, node, pools, leases)
  write_brief(node)
  refresh_pools(stem, node, new)
  if changed then redis.call('PUBLISH', stem .. 'pool:updated', node.id) end
  return changed
end

-- write_spec writes what is needed to end the node's generation after its hash has expired, one field per line.
local function write_spec(stem, id, spec)
  redis.call('HSET', stem .. 'node:specs', id,
    table.concat({ spec.kind, spec.host, spec.pid, spec.started, spec.hostname, spec.zone, spec.capabilities }, '\n'))
end

-- write_state writes a state that the node did not report. Where its hash has expired, it writes the hash again.
local function write_state(stem, node, state, now)
  if node.lost then
    local spec = spec_of(stem, node.id)
    redis.call('HSET', node.key, 'node_id', node.id, 'kind', spec.kind, 'generation', node.generation, 'host', spec.host,
      'pid', spec.pid, 'started_at_ms', spec.started, 'hostname', spec.hostname, 'zone', spec.zone,
      'capability_lines', spec.capabilities, 'max_concurrent_jobs', whole(node.max), 'online', '1', 'cordon', node.cordon)
    node.lost = nil
    redis.call('EXPIRE', node.key, LIFETIME)
  end
  node.state = state
  redis.call('HSET', node.key, 'state', state, 'updated_at_ms', whole(now))
end

-- count_capabilities adds to the number of registered nodes that have the capabilities.
local function count_capabilities(stem, capabilities, by)
  for _, c in ipairs(lines(capabilities)) do
    if redis.call('HINCRBY', stem .. 'capabilities', c, by) <= 0 then
      redis.call('HDEL', stem .. 'capabilities', c)
    end
  end
end

-- remember_capabilities records which capabilities nodes have had, also after these nodes are forgotten.
local function remember_capabilities(stem, capabilities, now)
  local known, MAX_KNOWN = stem .. 'capabilities:known', 10000
  for _, c in ipairs(lines(capabilities)) do redis.call('ZADD', known, whole(now), c) end
  redis.call('ZREMRANGEBYRANK', known, 0, -MAX_KNOWN - 1)
end

-- notify adds a notice about the node's generation to the outbox, where it stays until it is handled, and publishes that.
local function notify(stem, node, now, reason)
  local spec = spec_of(stem, node.id)
  redis.call('ZADD', stem .. 'outbox', whole(now), cjson.encode({
    nodeId = node.id, generation = node.generation, kind = spec.kind, host = spec.host, pid = spec.pid, startedAt = spec.started,
    reason = reason, at = whole(now),
  }))
  redis.call('PUBLISH', stem .. 'outbox:filled', node.id)
end

-- end_generation ends the node's generation: it deletes its slots, removes it from the indexes of free nodes, and adds a
-- notice to the outbox. The time of a loss outlasts later registrations, so that operators see it.
local function end_generation(stem, node, now, reason)
  local spec = spec_of(stem, node.id)
  clear_slots(stem, node.slots)
  redis.call('ZREM', stem .. 'node:due', node.id)
  redis.call('ZREM', stem .. 'node:draining', node.id)
  redis.call('ZREM', stem .. 'node:beats:' .. spec.kind, node.id)
  redis.call('ZREM', stem .. 'node:suspects:' .. spec.kind, node.id)
  redis.call('ZADD', stem .. 'node:dead', whole(now), node.id)
  write_state(stem, node, 'dead', now)
  redis.call('HSET', node.key, 'online', '0', 'departure', reason)
  if reason == 'unresponsive' or reason == 'service_lost' then redis.call('HSET', node.key, 'lost_at_ms', whole(now)) end
  redis.call('EXPIRE', node.key, LIFETIME)
  settle(stem, node, 0)
  count_capabilities(stem, spec.capabilities, '-1')
  notify(stem, node, now, reason)
-- include announce
  announce(stem, node.id, 'dead', reason)
end

-- delete_node deletes a dead node with everything that the scripts keep about it.
local function delete_node(stem, node, now)
  move(stem, node, {}, 0, now)
  redis.call('HDEL', stem .. 'node:briefs', node.id)
  redis.call('HDEL', stem .. 'node:specs', node.id)
  redis.call('HDEL', stem .. 'node:services', node.id)
  redis.call('HDEL', stem .. 'node:loads', node.id)
  redis.call('ZREM', stem .. 'node:marks', node.id)
  redis.call('DEL', node.key)
-- include announce
  announce(stem, node.id, 'removed')
end
