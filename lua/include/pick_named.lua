-- Sets `node` to the one with the id `named` if it can take the job, else `why` to the reason. Part of include pick.
node, leases = usable(want, named)
if not (node and listed == '' and #node.class == 41 and redis.call('ZSCORE', pool_key(want.stem, want.pool, 'classes'), node.class)) then
-- include settle
-- include lacks
  local found = node_of(want.stem, named)
  if not node then want.skipped[leases] = want.skipped[leases] > 1 and want.skipped[leases] - 1 or nil end -- counted below
  if not found then
    why = 'offline'
  elseif listed ~= '' and not string.find('\n' .. listed .. '\n', '\n' .. named .. '\n', 1, true)
    or listed == '' and not redis.call('ZSCORE', pool_key(want.stem, want.pool, 'classes'), found.class) then
    why = 'not_in_pool'
  else
    if lacks(want, found.class) then remark(want.stem, found, want.now) end -- the service may be available again
    if lacks(want, found.class) then
      why = 'service_unavailable'
    elseif found.out == 'full' then
      settle(want.stem, found, purge(want.stem, found, want.now)) -- leases may have expired
    end
  end
  node, leases = usable(want, named, why)
  if not node then why = leases end
end
