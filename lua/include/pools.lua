-- The pools of a node, and its moves between them. Needs includes fleet and settle.
--   config:pools    hash  pool -> its definition as JSON
--   config:anchors  hash  capability -> the defined pools to be matched with nodes that have it, one per line;
--                         field '' for pools without a capability

local LIFETIME = 3600 -- s, of node and pool keys; heartbeats refresh it

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

local function join_pool(stem, node, pool, leases)
  local turn = tonumber(redis.call('HGET', pool_key(stem, pool, 'state'), 'turn') or '0')
  if redis.call('SADD', pool_key(stem, pool, 'members'), node.id) == 1 then
    redis.call('HINCRBY', pool_key(stem, pool, 'state'), counted(node.out), '1')
  end
  if node.out == '' then
    redis.call('ZADD', pool_key(stem, pool, 'free'), load_of(node, leases), node.id)
    redis.call('ZADD', pool_key(stem, pool, 'places'), '0', place_of(node.zone, node.host, node.id))
  else
    turn = turn + BEHIND
  end
  redis.call('ZADD', pool_key(stem, pool, 'ring'), whole(turn), node.id)
end

local function leave_pool(stem, node, pool)
  if redis.call('SREM', pool_key(stem, pool, 'members'), node.id) == 1 then
    redis.call('HINCRBY', pool_key(stem, pool, 'state'), counted(node.out), '-1')
  end
  redis.call('ZREM', pool_key(stem, pool, 'free'), node.id)
  redis.call('ZREM', pool_key(stem, pool, 'places'), place_of(node.zone, node.host, node.id))
  redis.call('ZREM', pool_key(stem, pool, 'ring'), node.id)
end

local function refresh_pools(stem, pools)
  for _, pool in ipairs(pools) do
    for _, what in ipairs({ 'members', 'free', 'ring', 'places', 'state' }) do
      redis.call('EXPIRE', pool_key(stem, pool, what), LIFETIME)
    end
  end
end

-- move moves the node from its old pools to the new ones and returns whether anything changed.
local function move(stem, node, new, leases)
  state_of(node)
  local old, keep, changed = lines(node.pools), {}, false
  for _, pool in ipairs(new) do keep[pool] = true end
  for _, pool in ipairs(old) do
    if not keep[pool] then
      leave_pool(stem, node, pool)
      changed = true
    end
  end
  local had = {}
  for _, pool in ipairs(old) do had[pool] = true end
  for _, pool in ipairs(new) do
    if not had[pool] then
      join_pool(stem, node, pool, leases)
      changed = true
    end
  end
  node.pools = table.concat(new, '\n')
  write_brief(node)
  redis.call('DEL', node.key .. ':pools')
  if #new > 0 then
    redis.call('SADD', node.key .. ':pools', unpack(new))
    redis.call('EXPIRE', node.key .. ':pools', LIFETIME)
  end
  refresh_pools(stem, new)
  if changed then redis.call('PUBLISH', stem .. 'pool:updated', node.id) end
  return changed
end

-- count_capabilities adds to the number of registered nodes that have the capabilities.
local function count_capabilities(stem, capabilities, by)
  for _, c in ipairs(lines(capabilities)) do
    if redis.call('HINCRBY', stem .. 'capabilities', c, by) <= 0 then
      redis.call('HDEL', stem .. 'capabilities', c)
    end
  end
end

-- notify adds a notice about a generation to the outbox, where it stays until it is handled, and publishes that.
local function notify(stem, id, now, reason)
  local v = redis.call('HMGET', stem .. 'node:runtime:' .. id, 'generation', 'kind', 'host', 'pid', 'started_at_ms')
  redis.call('ZADD', stem .. 'outbox', whole(now), cjson.encode({
    nodeId = id, generation = v[1], kind = v[2], host = v[3], pid = v[4], startedAt = v[5], reason = reason, at = whole(now),
  }))
  redis.call('PUBLISH', stem .. 'outbox:filled', id)
end

-- end_generation ends the node's generation: it deletes its slots, removes it from the indexes of free nodes, and adds a
-- notice to the outbox.
local function end_generation(stem, node, now, reason)
  local v = redis.call('HMGET', node.key, 'kind', 'capability_lines')
  clear_slots(stem, node.slots)
  redis.call('ZREM', stem .. 'node:due', node.id)
  redis.call('ZREM', stem .. 'node:draining', node.id)
  redis.call('ZREM', stem .. 'node:beats:' .. v[1], node.id)
  redis.call('ZREM', stem .. 'node:suspects:' .. v[1], node.id)
  redis.call('ZADD', stem .. 'node:dead', whole(now), node.id)
  node.state = 'dead'
  redis.call('HSET', node.key, 'state', 'dead', 'online', '0', 'updated_at_ms', whole(now), 'departure', reason)
  settle(stem, node, 0)
  count_capabilities(stem, v[2], '-1')
  notify(stem, node.id, now, reason)
  announce(stem, node.id)
end
