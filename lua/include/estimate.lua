-- How long calls of a model wait. Needs include room. Everything here reads only.

-- waiter_position returns how many calls are estimated to be served before that of a waiting waiter.
local function waiter_position(room, waiter)
  local waiters = waiters_of(room)
  waiters.ahead_now = waiters.ahead_now or all_ahead(waiters)
  return waiters.ahead_now + (position_of(waiters, waiter))
end

-- newcomer_position returns how many calls are served before a new one of a flow: on each level each other child is served as often as
-- this one before it, the other queues as often as their weights allow.
local function newcomer_position(room, flow)
  local function state(field) return tonumber(redis.call('HGET', room.state, field) or '0') end
  local node, before, member = flow, redis.call('ZCARD', flow.leases), nil
  if before > 0 then member = select(2, head_of(flow)) end
  while node.parent.parent do
    local above = node.parent
    local rank = redis.call('ZRANK', above.order, member or node.name)
    if before > 0 or rank then
      before = math.floor(before * math.max(1, weights_below(room, above) / node.weight)) + (rank or 0)
    else
      before = redis.call('ZCOUNT', above.order, '-inf', precise(math.max(state('V:' .. above.path) - CREDIT, finish_of(node))))
    end
    before = math.min(before, state('n:' .. above.path))
    member, node = nil, above
  end
  local tag = tonumber(redis.call('ZSCORE', node.parent.order, node.name) or nil) or math.max(state('V:'), finish_of(node))
  return with_others(before, others_of(room, node, tag))
end

-- wait_at returns how many ms a call waits for a slot of some upstreams, by default all, before which so many are served; -1 when it is not known.
local function wait_at(room, position, upstreams)
  local gap, left = gap_of(room), stopped(room, upstreams)
  if gap < 0 or not left then return -1 end
  return math.ceil((position + 1) * gap + left)
end

-- call_waiting returns the lease with which the call of a waiter waits in the room; nil when it does not.
local function call_waiting(room, waiter)
  local flow, rest = flow_of(room, waiter), '^[^/]+/[^/]+/[^/]+/[^/]*/(.*)$'
  if not flow.calls then
    flow.calls = {}
    for _, lease in ipairs(redis.call('ZRANGE', flow.leases, 0, -1)) do
      local call = string.match(string.match(lease, rest), '^(.*):%d+#%d+$') -- see CallID in waiter.go
      if call then flow.calls[call] = lease end
    end
  end
  return flow.calls[(string.match(flow.path, '|user:([^|]*)') or string.match(flow.path, '|key:([^|]*)') or '') .. ':' .. string.match(waiter, rest)]
end

-- behind returns how many of so many calls do not get a free slot.
local function behind(room, n) return n - free_slots(room) end

-- coming returns how many calls are on the way to the room.
local function coming(room)
  local waiters, live = waiters_of(room), '(' .. whole(room.call.now)
  return redis.call('ZCARD', waiters.promoted) + redis.call('ZCOUNT', waiters.signalled, live, '+inf')
end

-- waiting_position returns how many calls are estimated to be served before that of a waiter that waits: in its workflow, on the way to
-- the room or there; nil for a waiter that does not wait. In the room its needs are known, too: the second result are the upstreams that may
-- make the call.
local function waiting_position(room, waiter)
  local waiters = waiters_of(room)
  if redis.call('ZSCORE', waiters.waiting, waiter) then return waiter_position(room, waiter) end
  local lease = call_waiting(room, waiter)
  if lease then return (position_of(room, lease)), usable_for(room, lease) end
  local rank = redis.call('ZRANK', waiters.signalled, waiter)
  if not rank then
    rank = redis.call('ZRANK', waiters.promoted, waiter)
    if not rank then return nil end
    rank = rank + redis.call('ZCARD', waiters.signalled)
  end
  return math.max(0, behind(room, rank)) + newcomer_position(room, flow_of(room, waiter))
end

-- estimate returns how many calls are served before one of a path that is submitted now, and as wait_at how long it waits.
local function estimate(room, path)
  local waiters, position = waiters_of(room), 0
  if redis.call('EXISTS', waiters.waiting) == 1 then
    position = all_ahead(waiters) + newcomer_position(waiters, node_at(waiters, path))
  else
    local before = behind(room, coming(room))
    local left = stopped(room)
    if redis.call('ZCARD', room.waiting) == 0 and before < 0 and left then return 0, left end
    position = math.max(0, before) + newcomer_position(room, node_at(room, path))
  end
  return position, wait_at(room, position)
end

-- wait_of returns what readers of a waiting call get: how long it waits, 1 where none of the upstreams that may make it works, and the names of
-- these, where they are not all.
local function wait_of(room, position, upstreams)
  local names = {}
  if upstreams and #upstreams < #room.upstreams then
    for i, u in ipairs(upstreams) do names[i] = u.name end
  end
  return wait_at(room, position, upstreams), works(room, upstreams) and 0 or 1, table.concat(names, ',')
end
