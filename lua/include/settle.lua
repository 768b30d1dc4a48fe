-- Changes of a node: settle updates every index that it belongs to. Needs include fleet.

-- place_of returns a node's member in the index of places.
local function place_of(zone, host, id) return zone .. '\1' .. host .. '\1' .. id end

-- write_brief writes the fields that node_of reads, if any of them changed.
local function write_brief(node)
  local brief = table.concat({ node.generation, whole(node.base), whole(node.active), whole(node.max), node.out, node.pools }, '\n')
  if brief == node.brief then return end
  redis.call('HSET', node.key, 'brief', brief)
  node.brief = brief
end

-- write_load writes a node's row in node:loads, from which processes sample the loads of all nodes with few commands: one
-- field per line. usage: cpu, gpu, memory, jobs, workflows and latency.
local function write_load(stem, node, leases, now, usage)
  redis.call('HSET', stem .. 'node:loads', node.id,
    table.concat({ node.generation, node.out, leases, whole(now), usage }, '\n'))
end

-- state_of reads the further fields that changes of a node need.
local function state_of(node)
  if node and not node.state then
    local v = redis.call('HMGET', node.key, 'state', 'hold', 'zone', 'hostname', 'unsure_until')
    node.state, node.hold, node.zone, node.host, node.unsure = v[1], v[2], v[3], v[4], tonumber(v[5] or '0')
  end
  return node
end

-- out_of returns the reason why the node cannot be chosen; '' when it can. A node that is unsure is treated as full: its
-- leases were lost, and their holders have a time to restore them.
local function out_of(node, leases)
  state_of(node)
  if node.state == 'dead' then return 'offline' end
  if node.state == 'suspect' then return 'suspect' end
  if node.hold ~= '' then return node.hold end
  if leases >= node.max or (node.unsure > 0 and node.unsure > clock()) then return 'full' end
  return ''
end

local function counted(out) return out == '' and 'free' or out end

-- settle updates the node in every index of its pools, by its state and leases, and publishes that it can be chosen again.
local function settle(stem, node, leases)
  local out, before = out_of(node, leases), node.out
  local free, moved = out == '', (out == '') ~= (before == '')
  local load = free and load_of(node, leases)
  if free or moved or out ~= before then
    for pool in string.gmatch(node.pools, '[^\n]+') do
      if free then
        redis.call('ZADD', pool_key(stem, pool, 'free'), load, node.id)
      elseif moved then
        redis.call('ZREM', pool_key(stem, pool, 'free'), node.id)
      end
      if moved then
        redis.call('ZINCRBY', pool_key(stem, pool, 'ring'), whole(free and -BEHIND or BEHIND), node.id)
        if free then
          redis.call('ZADD', pool_key(stem, pool, 'places'), '0', place_of(node.zone, node.host, node.id))
        else
          redis.call('ZREM', pool_key(stem, pool, 'places'), place_of(node.zone, node.host, node.id))
        end
      end
      if out ~= before then
        redis.call('HINCRBY', pool_key(stem, pool, 'state'), counted(before), '-1')
        redis.call('HINCRBY', pool_key(stem, pool, 'state'), counted(out), '1')
      end
    end
  end
  if out ~= before then
    node.out = out
    if free then redis.call('PUBLISH', stem .. 'node:free', node.id) end
  end
  write_brief(node)
end

-- clear_slots deletes all leases of a node.
local function clear_slots(stem, slots)
  local rows = redis.call('ZRANGE', slots, 0, -1)
  for i = 1, #rows, 1000 do redis.call('HDEL', stem .. 'leases', unpack(rows, i, math.min(i + 999, #rows))) end
  redis.call('DEL', slots)
end

-- purge deletes the node's expired leases and returns the number of the others. For a full node it notes when the next
-- lease expires, for an unsure one when it no longer is.
local function purge(stem, node, now)
  local ended = redis.call('ZRANGEBYSCORE', node.slots, '-inf', now, 'LIMIT', 0, 1000)
  if #ended > 0 then
    redis.call('HDEL', stem .. 'leases', unpack(ended))
    redis.call('ZREM', node.slots, unpack(ended))
  end
  local leases = redis.call('ZCARD', node.slots)
  if leases < node.max and state_of(node).unsure > now then
    redis.call('ZADD', stem .. 'node:due', node.unsure, node.id)
  elseif leases >= node.max then
    local first = redis.call('ZRANGE', node.slots, 0, 0, 'WITHSCORES')
    redis.call('ZADD', stem .. 'node:due', first[2], node.id)
  else
    redis.call('ZREM', stem .. 'node:due', node.id)
  end
  return leases
end

-- purge_due checks full nodes with a lease that may have expired, at most `limit`, and returns how many it checked.
local function purge_due(stem, now, limit)
  local ids = redis.call('ZRANGEBYSCORE', stem .. 'node:due', '-inf', now, 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    local node = node_of(stem, id)
    if node then
      settle(stem, node, purge(stem, node, now))
    else
      redis.call('ZREM', stem .. 'node:due', id)
      clear_slots(stem, stem .. 'node:slots:' .. id)
    end
  end
  return #ids
end
