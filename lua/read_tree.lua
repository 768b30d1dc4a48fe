-- read_tree: read what holds slots of a model and what waits for one on each level of the order, such as a queue or a team. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] limits of the model, see limits_of in include upstream
-- ARGV[4] maximum number of children of each level, 1 to 100
-- ARGV[5] path below the queues whose levels are read, such as team:a|app:b; empty for all
--
-- Returns {code, grace, starting, full, nodes}; code is OK
--   grace     ms for which nothing is granted because Redis may have lost leases, -1 where that begins with the next call
--   starting  number of waiters that have been promoted, and whose calls are not in the room yet
--   full      names of the upstreams whose provider has no free slot
--   nodes     {number of its parent in this list, from 1, or 0, name, weight, limit, used, slots in use, number of waiters, ahead, needs} of
--             each level, parents first; limit: maximum number of slots of all models, 0 for none; used: how many of these it uses; ahead:
--             number of neighbours that are served before it, -1 for a level that is not in the order: without waiters, or at its limit;
--             needs: what the first lease of a flow needs, see Needs in slot.go; empty for others

-- include room

local call, most = call_of(ARGV[1], KEYS[1], 1, 1, 0), tonumber(ARGV[4])
if not (limits_of(ARGV[3]) and most and most >= 1 and most <= 100) then return redis.error_reply('ERR read_tree: unreadable argument') end
call.reads = true
local room = room_of(call, ARGV[2], ARGV[3])
local waiters, live = waiters_of(room), '(' .. whole(call.now)

-- What is read has bounds, whatever the number of waiters: the flows with the most waiters, those at their limits, and those that are the
-- next of each level, of queues more, because a team may have many users with few waiters each. Levels beyond these are a part of the
-- numbers of the level above.
local MAX_FLOWS, MAX_NEXT, MAX_NEXT_OF_QUEUE, MAX_NODES = 300, 2 * (most or 0), 500, 400

local along = {}
for name in string.gmatch(ARGV[5], '[^|]+') do along[#along + 1] = name end

-- note records the levels of a path as the children of those above.
local below, used, flows = { [''] = {} }, {}, {}
local function note(path)
  if below[path] then return end
  local above, name = string.match(path, '^(.*)|([^|]*)$')
  if above then note(above) end
  below[path], below[above or ''][name or path] = {}, path
end

for _, lease in ipairs(redis.call('ZRANGEBYSCORE', room.holders, live, '+inf')) do
  local path = string.match(lease, '^[^/]+/([^/]+)/')
  if path then flows[path] = (flows[path] or 0) + 1 end
end
for path, n in pairs(flows) do
  note(path)
  while path do
    used[path] = (used[path] or 0) + n
    path = string.match(path, '^(.*)|')
  end
end
for queue in pairs(room.queues) do note(queue) end
for _, r in ipairs({ room, waiters }) do
  for _, path in ipairs(redis.call('ZREVRANGE', r.users, 0, MAX_FLOWS - 1)) do note(path) end
end
for _, path in ipairs(redis.call('ZRANGE', waiters.aside, 0, MAX_FLOWS - 1)) do note(path) end

-- is_flow reports whether leases wait at a level, and not below it.
local function is_flow(path)
  local name = string.match(path, '[^|]*$')
  return string.find(name, '^end:') ~= nil or string.find(name, '^user:') ~= nil and not string.find(path, '|app:', 1, true)
end

-- count_waiting_at sets how many leases wait at levels and below them.
local function count_waiting_at(list)
  for _, r in ipairs({ room, waiters }) do
    local fields, inner = {}, {}
    for _, level in ipairs(list) do
      if is_flow(level.path) then
        level.waits = level.waits + tonumber(redis.call('ZSCORE', r.users, level.path) or '0')
      else
        fields[#fields + 1], inner[#inner + 1] = 'n:' .. level.path, level
      end
    end
    for first = 1, #fields, 1000 do
      for i, n in ipairs(redis.call('HMGET', r.state, unpack(fields, first, math.min(first + 999, #fields)))) do
        inner[first + i - 1].waits = inner[first + i - 1].waits + tonumber(n or '0')
      end
    end
  end
end

-- children_of returns the levels below one, those with the most waiters first.
local function children_of(path, depth)
  local only = depth > 1 and along[depth - 1] or nil
  if only then
    note(path == '' and only or path .. '|' .. only)
  else
    for _, r in ipairs({ room, waiters }) do
      for i, member in ipairs(redis.call('ZRANGE', r.order .. path, 0, (depth == 2 and MAX_NEXT_OF_QUEUE or MAX_NEXT) - 1)) do
        local name, flow = name_of(member)
        if not flow or i <= MAX_NEXT then note(path == '' and name or path .. '|' .. name) end
      end
    end
  end
  local all, list = {}, {}
  for name, child in pairs(below[path]) do
    if not only or name == only then table.insert(all, { path = child, name = name, waits = 0, used = used[child] or 0, depth = depth }) end
  end
  count_waiting_at(all)
  for _, level in ipairs(all) do
    if level.waits + level.used > 0 then table.insert(list, level) end
  end
  table.sort(list, function(a, b)
    if a.waits ~= b.waits then return a.waits > b.waits end
    if a.used ~= b.used then return a.used > b.used end
    return a.name < b.name
  end)
  return list
end

-- ahead_at returns how many neighbours are served before a level, first those in the room; -1 where it is not in the order. With it it
-- returns what the first lease of a flow needs.
local function ahead_at(path)
  local before, needs = 0, ''
  for _, r in ipairs({ room, waiters }) do
    local node, member = node_at(r, path), nil
    if is_flow(path) then
      local lease
      lease, member = head_of(node)
      if lease and needs == '' then needs = string.match(lease, '^[^/]+/[^/]+/[^/]+/([^/]*)/') or '' end
    end
    local rank = (member or not is_flow(path)) and redis.call('ZRANK', node.parent.order, member or node.name)
    if rank then return before + rank, needs end
    before = before + redis.call('ZCARD', node.parent.order)
  end
  return -1, needs
end

local nodes, open = {}, { { path = '', depth = 0, number = 0 } }
for _, above in ipairs(open) do
  for i, child in ipairs(children_of(above.path, above.depth + 1)) do
    if i > most or #nodes >= MAX_NODES then break end
    local node = node_at(room, child.path)
    local limit_used = node.limit > 0 and redis.call('ZCOUNT', slots_key(call, node.name), live, '+inf') or 0
    local ahead, needs = ahead_at(child.path)
    table.insert(nodes, {
      above.number, child.name, string.format('%.17g', node.weight), node.limit, limit_used, child.used, child.waits,
      child.waits > 0 and ahead or -1, needs,
    })
    if not is_flow(child.path) then
      child.number = #nodes
      open[#open + 1] = child
    end
  end
end

local full = {}
for _, u in ipairs(room.upstreams) do
  if u.provider and redis.call('ZCOUNT', u.provider, live, '+inf') >= u.provider_cap then table.insert(full, u.name) end
end
local starting = redis.call('ZCARD', waiters.promoted) + redis.call('ZCOUNT', waiters.signalled, live, '+inf')
return { 'OK', (grace_left(KEYS[1], call.now, 0)) or -1, starting, full, nodes }
