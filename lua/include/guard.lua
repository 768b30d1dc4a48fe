-- The guard shows whether this Redis is the one that has every lease.
--   guard  hash  server: the server that wrote it, grace: until when nothing may be granted, in Redis's milliseconds,
--                epoch: the number of the grace, nodes: until when nothing may be granted on nodes, where that takes longer,
--                format: of the keys of leases, rooms and nodes

-- FORMAT is the format of the keys that these scripts read and write. A guard without one is older than its field and has format 1.
-- A release that changes keys so that an earlier one would misread them raises it.
local FORMAT = '1'

-- check_format fails where the guard, if there is one, names a format of the keys that these scripts do not know.
local function check_format(exists, format)
  if exists and (format or '1') ~= FORMAT then
    error('the keys of this Redis have format ' .. (format or '1') .. ', and this version of berth knows format ' .. FORMAT ..
      ': run a version that knows it, see docs/operations.md, section Upgrades')
  end
end

-- server returns the line of INFO with the replication id of this Redis. A server gets a new one when it starts as a master
-- and when it becomes one. The run id would miss a master that was replaced for a time and returned without a restart, and
-- whose copy of the guard is as old as its leases. The embedded server has no id: a restart loses its guard.
local function server(info)
  if type(info) == 'string' then
    local id = string.match(info, 'master_replid:%w+')
    if id then return id end
    error('INFO replication has no master_replid: leases cannot be protected against a failover')
  end
  if string.find(info.err, 'is not supported', 1, true) then return 'embedded' end
  error('INFO is not permitted to this Redis user: leases cannot be protected against a failover: ' .. info.err)
end

-- grace_left returns for how many milliseconds nothing may be granted. Leases may have been lost where the guard is missing,
-- was written by another server, or is older than `known`, the last epoch that the caller has seen: a master that did not
-- notice that it was replaced has its own guard. Then it returns nil, the id of this server and the next epoch. Reading the id
-- is the most expensive part of a decision, so the line is searched as it is. With `nodes` it returns the same for nodes.
local function grace_left(guard, now, known, nodes)
  local info, seen = redis.pcall('INFO', 'replication'), redis.call('HMGET', guard, 'server', 'grace', 'epoch', 'nodes', 'format')
  check_format(seen[1], seen[5])
  local found = seen[1] and type(info) == 'string' and string.find(info, seen[1], 1, true)
  local id, epoch = found and seen[1] or server(info), tonumber(seen[3] or '0')
  if seen[1] == id and epoch >= known then
    return math.max(0, tonumber(seen[2]) - now, nodes and seen[4] and tonumber(seen[4]) - now or 0)
  end
  return nil, id, math.max(epoch, known) + 1
end

-- grace returns the same; where leases may have been lost it opens a grace of the given time.
local function grace(guard, now, time, known, nodes)
  local left, id, epoch = grace_left(guard, now, known, nodes)
  if left then return left end
  redis.call('HSET', guard, 'server', id, 'grace', string.format('%.0f', now + time), 'epoch', string.format('%.0f', epoch),
    'format', FORMAT)
  return time
end
