-- The tree in which leases wait; see include room, which sets CREDIT and more before.

-- precise formats a tag.
local function precise(n) return string.format('%.17g', n) end

-- read_state returns a number of the room's state. A virtual time that Redis does not have begins at its clock: it is then
-- later than the tags of waiters that return after a loss of data, because a room grants less than 1,000 costs per second.
local function read_state(room, field)
  local v = tonumber(redis.call('HGET', room.state, field) or nil)
  if not v and string.sub(field, 1, 1) == 'V' then
    v = room.call.now
    redis.call('HSET', room.state, field, whole(v))
  end
  return v or 0
end

-- level_of returns the weight of a level below the queues, and its limit of slots, 0 for none. Users have one limit.
local function level_of(room, name)
  local levels = room.levels
  if not levels[name] then
    local kind, level = string.match(name, '^[^:]*'), { weight = 1, limit = 0 }
    if kind == 'user' then
      level.limit = room.user_cap
    elseif kind == 'team' or kind == 'app' then
      local weight, limit = string.match(redis.call('HGET', room.call.prefix .. 'slots:levels', name) or '', '^([%d.]+) (%d+)$')
      level = { weight = tonumber(weight or '1'), limit = tonumber(limit or '0'), weighted = true }
    end
    levels[name] = level
  end
  return levels[name]
end

-- node_at returns a node of the tree; the root for the empty path.
local function node_at(room, path)
  local node = room.nodes[path]
  if node then return node end
  node = {
    path = path, order = room.stem .. 'order:' .. path, finish = room.stem .. 'finish:' .. path, weights = room.stem .. 'weights:' .. path,
    limited = {}, -- the nodes of the path that have a limit, the highest first
  }
  room.nodes[path] = node
  if path == '' then return node end
  local above, name = string.match(path, '^(.*)|(.*)$')
  node.name, node.parent, node.leases = name or path, node_at(room, above or ''), room.stem .. 'flow:' .. path
  node.depth = (node.parent.depth or 0) + 1
  if above then
    local level = level_of(room, name)
    node.weight, node.limit, node.weighted = level.weight, level.limit, level.weighted
  else
    node.weight, node.limit = room.queues and room.queues[path] or 1, 0
  end
  for i, limited in ipairs(node.parent.limited) do node.limited[i] = limited end
  if node.limit > 0 then table.insert(node.limited, node) end
  return node
end

-- flow_of returns the flow of a lease, and the lease's process and cost.
local function flow_of(room, lease)
  local process, path, cost = string.match(lease, '^([^/]+)/([^/]+)/([^/]+)/')
  return node_at(room, path), process, tonumber(cost)
end

-- is_lease reports whether a lease id has all its parts.
local function is_lease(lease)
  local path, cost = string.match(lease, '^[^/]+/([^/]+)/([^/]+)/[^/;]*;[^/;]*;[^/]*/')
  return cost and tonumber(cost) ~= nil and string.find(path, '^[^|]+|[^|]+') ~= nil
end

-- head_of returns the first lease of a flow, its member of the order, and its number: equal tags are served by arrival.
local function head_of(flow)
  local first = redis.call('ZRANGE', flow.leases, 0, 0, 'WITHSCORES')
  if not first[1] then return nil end
  local number = tonumber(first[2])
  return first[1], string.format('%016.0f', number) .. flow.name, number
end

-- name_of returns the level of a member of an order, and whether it is that of a flow.
local function name_of(member)
  local name = string.match(member, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d(.+)$')
  return name or member, name ~= nil
end

-- first_flow returns the flow that is served next, and its member of the order; nil where none is in the order. Of queues with equal
-- tags that with the highest weight is first.
local function first_flow(room)
  local node = node_at(room, '')
  while true do
    local first
    if node.path == '' then
      local all = redis.call('ZRANGE', node.order, 0, 15, 'WITHSCORES')
      for i = 1, #all, 2 do
        if all[i + 1] ~= all[2] then break end
        if not first or node_at(room, all[i]).weight > node_at(room, first).weight then first = all[i] end
      end
    else
      first = redis.call('ZRANGE', node.order, 0, 0)[1]
    end
    if not first then return nil end
    local name, is_flow = name_of(first)
    node = node_at(room, node.path == '' and name or node.path .. '|' .. name)
    if is_flow then return node, first end
  end
end

-- order_of returns the number of a new lease in the order of arrival. Orders never decrease, even in a Redis that lost its
-- data, because they follow its clock in microseconds.
local function order_of(room)
  local t, last = redis.call('TIME'), read_state(room, 'arrivals')
  local order = math.max(last + 1, tonumber(t[1]) * 1000000 + tonumber(t[2]))
  redis.call('HSET', room.state, 'arrivals', whole(order))
  return order
end

-- ticket_of formats what a lease has to pass to return to its position: its order, and the tags on each level of its path.
local function ticket_of(order, tags)
  local parts = { whole(order) }
  for i, tag in ipairs(tags) do parts[i + 1] = precise(tag) end
  return table.concat(parts, '/')
end

-- parse_ticket returns the order and the tags of a ticket, 0 and none for a new lease; nil when it is unreadable.
local function parse_ticket(ticket)
  if ticket == '' then return 0, {} end
  local order, rest = string.match(ticket, '^(%d+)/(.+)$')
  if not order then return nil end
  local tags = {}
  for part in string.gmatch(rest, '[^/]+') do
    local tag = string.match(part, '^[%d.e+]+$') and tonumber(part)
    if not tag then return nil end
    table.insert(tags, tag)
  end
  return tonumber(order), tags
end

-- finish_of returns the tag at which the last grant of a node ended.
local function finish_of(node) return tonumber(redis.call('ZSCORE', node.parent.finish, node.name) or '0') end

-- tag_of returns the next tag of a node: so much credit before the virtual time, but not before the end of its last grant.
local function tag_of(room, node, credit)
  return math.max(read_state(room, 'V:' .. node.parent.path) - credit, finish_of(node))
end

-- list puts a node into the order of its parent; `member` is that of a flow. unlist takes it out.
local function list(node, member, tag)
  redis.call('ZADD', node.parent.order, precise(tag), member or node.name)
  if node.weighted then redis.call('ZADD', node.parent.weights, node.weight, node.name) end
end

local function unlist(node, member)
  redis.call('ZREM', node.parent.order, member or node.name)
  if node.weighted then redis.call('ZREM', node.parent.weights, node.name) end
end

-- unlist_empty takes a node without children in the order out of that of its parent, and so on.
local function unlist_empty(node)
  while node.parent and redis.call('ZCARD', node.order) == 0 do
    unlist(node)
    node = node.parent
  end
end

-- weights_below returns the weights of all children of a node that are in the order.
local function weights_below(room, node)
  local sum = 0
  if node.parent then
    sum = redis.call('ZCARD', node.order)
    local all = redis.call('ZRANGE', node.weights, 0, -1, 'WITHSCORES')
    for i = 2, #all, 2 do sum = sum + tonumber(all[i]) - 1 end
  else
    for _, queue in ipairs(redis.call('ZRANGE', node.order, 0, -1)) do sum = sum + node_at(room, queue).weight end
  end
  return sum
end

-- is_listed reports whether a node is in the order of its parent. `member` is that of a flow.
local function is_listed(node, member) return redis.call('ZSCORE', node.parent.order, member or node.name) ~= false end

-- count_waiting adds a lease to the numbers of those that wait below each node of its path. It returns the nodes that had none.
local function count_waiting(room, flow)
  local fresh, node = {}, flow.parent
  redis.call('ZINCRBY', room.users, 1, flow.path)
  while node.parent do
    if redis.call('HINCRBY', room.state, 'n:' .. node.path, 1) == 1 then fresh[node.depth] = node end
    node = node.parent
  end
  return fresh
end

-- forget_children ends the order of a node without waiting leases: none of its children has an advantage or a debt that lasts.
local function forget_children(room, node)
  local last = redis.call('ZREVRANGE', node.finish, 0, 0, 'WITHSCORES')
  if node.depth and node.depth > 1 then -- its virtual time begins at the clock again
    redis.call('HDEL', room.state, 'n:' .. node.path, 'V:' .. node.path)
  else
    redis.call('HSET', room.state, 'V:' .. node.path, precise(math.max(read_state(room, 'V:' .. node.path), tonumber(last[2] or '0'))))
  end
  redis.call('UNLINK', node.finish)
end

-- uncount_waiting is the opposite of count_waiting, after a lease has left its flow.
local function uncount_waiting(room, flow)
  if tonumber(redis.call('ZINCRBY', room.users, -1, flow.path)) <= 0 then redis.call('ZREM', room.users, flow.path) end
  local node = flow.parent
  while node.parent do
    if redis.call('HINCRBY', room.state, 'n:' .. node.path, -1) <= 0 then
      redis.call('HSET', room.state, 'n:' .. node.path, 0)
      forget_children(room, node)
    end
    node = node.parent
  end
  if redis.call('ZCARD', room.waiting) == 0 then
    forget_children(room, node)
    redis.call('HDEL', room.state, 'granted') -- the time until the next waiter arrives is not one between grants
  end
end

-- charge advances the virtual times by the grant of a flow's first lease, which has these tags, and the ends of the last grants.
local function charge(room, flow, tags, cost)
  local node = flow
  while node.parent do
    local tag, field = tags[node.depth], 'V:' .. node.parent.path
    local time = math.max(read_state(room, field), tag)
    redis.call('HSET', room.state, field, precise(time))
    redis.call('ZADD', node.parent.finish, precise(tag + cost / node.weight), node.name)
    -- The end of a grant that is this early is that of a new child.
    local past = redis.call('ZRANGEBYSCORE', node.parent.finish, '-inf', precise(time - CREDIT), 'LIMIT', 0, 4)
    if past[1] then redis.call('ZREM', node.parent.finish, unpack(past)) end
    node = node.parent
  end
end

-- tags_of returns the tags of a flow, which has `member` in the order, and of the nodes above it; 0 for those that are not in it.
local function tags_of(flow, member)
  local tags, node = {}, flow
  while node.parent do
    tags[node.depth] = tonumber(redis.call('ZSCORE', node.parent.order, member or node.name) or '0')
    member, node = nil, node.parent
  end
  return tags
end

-- take_first removes the first lease of a flow, which has `member` in the order, charges the flow, and returns the ticket that the
-- lease had. What the lease gets is recorded before advance.
local function take_first(room, flow, lease, member, cost)
  local tags = tags_of(flow, member)
  local ticket = ticket_of(tonumber(redis.call('ZSCORE', flow.leases, lease)), tags)
  redis.call('ZREM', flow.leases, lease)
  redis.call('ZREM', room.waiting, lease)
  charge(room, flow, tags, cost)
  return ticket
end

-- others_of returns what the leases of other queues depend on that are served before one of a queue with a tag.
local function others_of(room, queue, tag)
  local others, all = {}, redis.call('ZRANGE', queue.parent.order, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    if all[i] ~= queue.name then
      table.insert(others, {
        rounds = tonumber(all[i + 1]) <= tag and 1 or 0, share = node_at(room, all[i]).weight / queue.weight,
        waiting = read_state(room, 'n:' .. all[i]),
      })
    end
  end
  return others
end

-- with_others adds to the number of leases of a queue those of others that are served before.
local function with_others(before, others)
  local position = before
  for _, other in ipairs(others) do
    position = position + math.min(other.waiting, math.floor((before + other.rounds) * other.share))
  end
  return position
end

-- standing_of returns what the positions of a flow's leases depend on. It may be called after the last change.
local function standing_of(room, flow)
  if flow.standing then return flow.standing end
  local _, member = head_of(flow)
  local s = { tags = tags_of(flow, member), levels = {} }
  flow.standing = s
  local node = flow
  while node.parent.parent do
    local above = node.parent
    table.insert(s.levels, {
      shares = math.max(1, weights_below(room, above) / node.weight), rank = redis.call('ZRANK', above.order, member or node.name) or 0,
      waiting = read_state(room, 'n:' .. above.path),
    })
    member, node = nil, above
  end
  s.others = others_of(room, node, s.tags[1])
  return s
end

-- position_of returns how many leases are estimated to be served before a waiting one, and its ticket: on each level as many of
-- each other child as of its own, and of the other queues as many as their weights allow.
local function position_of(room, lease)
  local flow = flow_of(room, lease)
  local s = standing_of(room, flow)
  local before = redis.call('ZRANK', flow.leases, lease)
  for _, l in ipairs(s.levels) do before = math.min(math.floor(before * l.shares) + l.rank, l.waiting - 1) end
  return math.max(0, with_others(before, s.others)), ticket_of(tonumber(redis.call('ZSCORE', flow.leases, lease)), s.tags)
end
