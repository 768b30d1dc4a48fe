-- The guard shows whether this Redis is the one that has every lease.
--   guard  hash  server: the server that wrote it, grace: until when nothing may be granted, in Redis's milliseconds,
--                epoch: the number of the grace, nodes: until when nothing may be granted on nodes, where that takes longer,
--                format: of the keys of leases, rooms and nodes

-- grace_left returns for how many milliseconds nothing may be granted. Leases may have been lost where the guard is missing,
-- was written by another server, or is older than `known`, the last epoch that the caller has seen: a master that did not
-- notice that it was replaced has its own guard. Then it returns nil, the id of this server and the next epoch. Reading the id
-- is the most expensive part of a decision, so the line is searched as it is. With `nodes` it returns the same for nodes.
local function grace_left(guard, now, known, nodes)
-- include format
  local info, seen = redis.pcall('INFO', 'replication'), redis.call('HMGET', guard, 'server', 'grace', 'epoch', 'nodes', 'format')
  local id, epoch = seen[1], (seen[3] or '0') + 0
  if not (id and seen[5] == FORMAT and type(info) == 'string' and string.find(info, id, 1, true)) then
-- include server
    check_format(id, seen[5])
    id = server(info)
  end
  if seen[1] == id and epoch >= known then
    return math.max(0, seen[2] - now, nodes and seen[4] and seen[4] - now or 0)
  end
  return nil, id, math.max(epoch, known) + 1
end
