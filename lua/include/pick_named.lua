-- Chooses the node with the id `named` if it can take the job, else sets `why` to the reason. See include request.
local id = named
-- include try
local fits = node and listed == '' and #class == 41
if fits and string.find(services, '[+?]') then
-- include lacks
  fits = not lacks(services, class)
end
if not (fits and redis.call('ZSCORE', pool_key(stem, pool, 'classes'), class)) then
-- include settle
-- include lacks
  node = nil
  if reason then skipped[reason] = skipped[reason] > 1 and skipped[reason] - 1 or nil end -- counted again below
  local found = node_of(stem, id)
  if not found then
    why = 'offline'
  elseif listed ~= '' and not string.find('\n' .. listed .. '\n', '\n' .. id .. '\n', 1, true)
    or listed == '' and not redis.call('ZSCORE', pool_key(stem, pool, 'classes'), found.class) then
    why = 'not_in_pool'
  else
    local _, why_not = lacks(services, found.class)
    if why_not == 'service_unavailable' then
      remark(stem, found, now) -- the service may be available again
      _, why_not = lacks(services, found.class)
    end
    if why_not then
      why = why_not
    elseif found.out == 'full' then
      settle(stem, found, purge(stem, found, now)) -- leases may have expired
    end
  end
  if why then
    skipped[why] = (skipped[why] or 0) + 1
  else
-- include try
    why = reason
  end
end
