-- The server that runs a script, and what its guard says about its keys. Needs include format.

-- check_format fails where the guard, if there is one, names a format of the keys that these scripts do not know.
local function check_format(exists, format)
  if exists and format ~= FORMAT then
    error('the keys of this Redis have format ' .. (format or 'none') .. ', and this version of berth knows format ' .. FORMAT ..
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
