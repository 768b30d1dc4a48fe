-- Changes of a node: settle updates every index of its class. Needs include fleet.

-- include node

-- location_of returns a node's member in the index of locations.
local function location_of(zone, host, id) return zone .. '\1' .. host .. '\1' .. id end

-- write_brief writes the fields that node_of reads, if any of them changed.
local function write_brief(node)
  local brief = table.concat({ node.generation, whole(node.base), whole(node.active), whole(node.max), node.out, whole(node.each),
    whole(node.seen), node.class }, '\n')
  if brief == node.brief then return end
  redis.call('HSET', node.stem .. 'node:briefs', node.id, brief)
  node.brief = brief
end

-- write_load writes a node's row in node:loads, from which processes sample the loads of all nodes with few commands: one
-- field per line. usage: cpu, gpu, memory, jobs, workflows and latency.
local function write_load(stem, node, leases, now, usage)
  redis.call('HSET', stem .. 'node:loads', node.id,
    table.concat({ node.generation, node.out, leases, whole(now), usage }, '\n'))
end

-- spec_of reads the node's registration.
local function spec_of(stem, id)
  local row = redis.call('HGET', stem .. 'node:specs', id)
  if not row then return nil end
  local kind, host, pid, started, hostname, zone, capabilities =
    string.match(row, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
  return { kind = kind, host = host, pid = pid, started = started, hostname = hostname, zone = zone, capabilities = capabilities }
end

-- state_of reads the further fields that changes of a node need. The hash of a node that sent no heartbeat for long has
-- expired: `lost`.
local function state_of(node)
  if node and not node.state then
    local v = redis.call('HMGET', node.key, 'state', 'cordon', 'zone', 'hostname', 'unsure_until')
    node.state, node.cordon, node.zone, node.host, node.unsure = v[1], v[2], v[3], v[4], tonumber(v[5] or '0')
    if not v[1] then
      local spec = spec_of(node.stem, node.id)
      node.lost, node.state, node.cordon = true, node.out == 'offline' and 'dead' or 'ready', ''
      node.zone, node.host = spec.zone, spec.hostname
    end
  end
  return node
end

-- out_of returns the reason why the node cannot be chosen; '' when it can. A node that is unsure is treated as full: its
-- leases were lost, and their holders have a time to restore them.
local function out_of(node, leases)
  state_of(node)
  if node.state == 'dead' then return 'offline' end
  if node.state == 'suspect' then return 'suspect' end
  if node.cordon ~= '' then return node.cordon end
  if leases >= node.max or (node.unsure > 0 and node.unsure > clock()) then return 'full' end
  return ''
end

local function counted(out) return out == '' and 'free' or out end

-- pools_of_class returns the pools of a class, one per line.
local function pools_of_class(stem, class) return class ~= '' and redis.call('HGET', stem .. 'classes', class) or '' end

-- open_class adds the node's class to the pools' classes in which a node can be chosen, close_class removes it.
local function open_class(stem, node)
  for pool in string.gmatch(pools_of_class(stem, node.class), '[^\n]+') do
    redis.call('ZADD', pool_key(stem, pool, 'open'), '0', node.class)
  end
end

local function close_class(stem, node)
  for pool in string.gmatch(pools_of_class(stem, node.class), '[^\n]+') do
    redis.call('ZREM', pool_key(stem, pool, 'open'), node.class)
  end
end

-- show adds the node to the indexes of those that can be chosen, hide removes it.
local function show(stem, node, leases)
  local free = class_key(stem, node.class, 'free')
  redis.call('ZADD', free, load_of(leases, node.base, node.active, node.max, node.each, node.seen), node.id)
  redis.call('ZADD', class_key(stem, node.class, 'locations'), '0', location_of(node.zone, node.host, node.id))
  if redis.call('ZCARD', free) == 1 then open_class(stem, node) end
end

local function hide(stem, node)
  local free = class_key(stem, node.class, 'free')
  redis.call('ZREM', free, node.id)
  redis.call('ZREM', class_key(stem, node.class, 'locations'), location_of(node.zone, node.host, node.id))
  if redis.call('ZCARD', free) == 0 then close_class(stem, node) end
end

-- services_of returns the services that a node declares, one per line.
local function services_of(stem, id) return redis.call('HGET', stem .. 'node:services', id) or '' end

-- join_class adds the node to the indexes of its class, which has the pools. Idempotent.
local function join_class(stem, node, pools, leases)
  if node.class == '' or redis.call('SADD', class_key(stem, node.class, 'nodes'), node.id) == 0 then return end
  redis.call('HINCRBY', class_key(stem, node.class, 'state'), counted(node.out), '1')
  if redis.call('HSETNX', stem .. 'classes', node.class, pools) == 1 then
    for pool in string.gmatch(pools, '[^\n]+') do
      redis.call('ZADD', pool_key(stem, pool, 'classes'), '0', node.class)
    end
    local services = services_of(stem, node.id)
    if services ~= '' then redis.call('HSET', stem .. 'class:services', node.class, services) end
  end
  if node.out == '' then show(stem, node, leases) end
end

-- leave_class removes the node from the indexes of its class.
local function leave_class(stem, node)
  if node.class == '' then return end
  local nodes, state = class_key(stem, node.class, 'nodes'), class_key(stem, node.class, 'state')
  if redis.call('SREM', nodes, node.id) == 0 then return end
  redis.call('HINCRBY', state, counted(node.out), '-1')
  if node.out == '' then hide(stem, node) end
  if redis.call('SCARD', nodes) == 0 then
    for pool in string.gmatch(pools_of_class(stem, node.class), '[^\n]+') do
      redis.call('ZREM', pool_key(stem, pool, 'classes'), node.class)
    end
    redis.call('DEL', state)
    redis.call('HDEL', stem .. 'classes', node.class)
    redis.call('HDEL', stem .. 'class:services', node.class)
  end
end

-- settle updates the node in every index of its class, by its state and leases, and publishes that it can be chosen again.
local function settle(stem, node, leases)
  local out, before = out_of(node, leases), node.out
  local free, moved = out == '', (out == '') ~= (before == '')
  if node.class ~= '' and moved then
    if free then show(stem, node, leases) else hide(stem, node) end
  elseif free then
    update_load(stem, node, leases)
  end
  if out ~= before then
    if node.class ~= '' then
      local state = class_key(stem, node.class, 'state')
      redis.call('HINCRBY', state, counted(before), '-1')
      redis.call('HINCRBY', state, counted(out), '1')
    end
    node.out = out
    if free then redis.call('PUBLISH', stem .. 'node:free', node.id) end
  end
  write_brief(node)
end

-- marks_of returns the services of a node that are unavailable, each between commas and in order, and when the first and the
-- last of them are available again.
local function marks_of(stem, id, now)
  local all, marks, first, last = redis.call('HGETALL', stem .. 'node:unavailable:' .. id), {}, nil, 0
  for i = 1, #all, 2 do
    local till = tonumber(all[i + 1])
    if till > now then
      marks[#marks + 1] = all[i]
      first, last = math.min(first or till, till), math.max(last, till)
    end
  end
  if #marks == 0 then return '', nil, 0 end
  table.sort(marks)
  return table.concat(marks, ',') .. ',', first, last
end

-- class_of returns the class of the nodes with these pools, declared services and marks.
local function class_of(pools, services, marks)
  if pools == '' then return '' end
  return redis.sha1hex(services == '' and pools or pools .. '\n\n' .. services) .. ',' .. marks
end

-- lacks_any reports whether marks do not have all of some earlier ones: a service is available again.
local function lacks_any(marks, earlier)
  for service in string.gmatch(earlier, '[^,]+') do
    if not string.find(',' .. marks, ',' .. service .. ',', 1, true) then return true end
  end
  return false
end

-- remark moves the node to the class of its pools and of the services that are unavailable now. It returns when the last of them
-- is available again, 0 for none.
local function remark(stem, node, now)
  local marks, first, last = marks_of(stem, node.id, now)
  if first then
    redis.call('ZADD', stem .. 'node:marks', whole(first), node.id)
  else
    redis.call('ZREM', stem .. 'node:marks', node.id)
  end
  local before = string.sub(node.class, 42)
  if before == marks or node.class == '' then return last end
  state_of(node)
  local pools = pools_of_class(stem, node.class)
  leave_class(stem, node)
  node.class = class_of(pools, services_of(stem, node.id), marks)
  join_class(stem, node, pools, leases_of(node, now))
  write_brief(node)
  if node.out == '' and lacks_any(marks, before) then redis.call('PUBLISH', stem .. 'node:free', node.id) end
  return last
end

-- purge_marks moves nodes with a service that is available again, at most `limit`, and returns how many it checked.
local function purge_marks(stem, now, limit)
  local ids = redis.call('ZRANGEBYSCORE', stem .. 'node:marks', '-inf', whole(now), 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    local node = node_of(stem, id)
    if node then remark(stem, node, now) else redis.call('ZREM', stem .. 'node:marks', id) end
  end
  return #ids
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
