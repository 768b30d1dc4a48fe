-- The guard shows whether this Redis is the one that has every lease.
--   guard  hash  server: the server that wrote it, grace: until when nothing may be granted, in Redis's milliseconds

-- server returns the replication id of this Redis. A server gets a new one when it starts as a master and when it becomes
-- one. The run id would miss a master that was replaced for a time and returned without a restart, and whose copy of the
-- guard is as old as its leases. The embedded server has no id: a restart loses its guard.
local function server()
  local info = redis.pcall('INFO', 'replication')
  if type(info) == 'string' then
    local id = string.match(info, 'master_replid:(%w+)')
    if id then return id end
    error('INFO replication has no master_replid: leases cannot be protected against a failover')
  end
  if string.find(info.err, 'is not supported', 1, true) then return 'embedded' end
  error('INFO is not permitted to this Redis user: leases cannot be protected against a failover: ' .. info.err)
end

-- grace_left returns for how many milliseconds nothing may be granted; nil when that is yet to be decided, because the
-- guard is missing or was written by another server: leases may have been lost.
local function grace_left(guard, now)
  local id, seen = server(), redis.call('HMGET', guard, 'server', 'grace')
  return seen[1] == id and seen[2] and math.max(0, tonumber(seen[2]) - now) or nil
end

-- grace returns the same; where leases may have been lost it opens a grace of the given time.
local function grace(guard, now, time)
  local left = grace_left(guard, now)
  if left then return left end
  redis.call('HSET', guard, 'server', server(), 'grace', string.format('%.0f', now + time))
  return time
end
