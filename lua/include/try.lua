-- Tries the node `id`: chooses it if it can take the job, else counts the reason. It does not check the services: the classes that are
-- searched have them. Part of include pick.
reason = nil
if excluded ~= '' and string.find(excluded, '\n' .. id .. '\n', 1, true) then
  reason = 'excluded'
else
  local brief = redis.call('HGET', stem .. 'node:briefs', id)
  if brief then
    local out
-- include brief
    if excluded ~= '' and string.find(excluded, '\n' .. id .. '\1' .. generation .. '\n', 1, true) then
      reason = 'excluded'
    elseif out ~= '' then
      reason = out
    else
      leases = redis.call('ZCOUNT', stem .. 'node:slots:' .. id, whole(now + 1), '+inf')
      if leases < tonumber(max) then
        node = id
      else
        reason = 'full'
      end
    end
  else
    reason = 'offline'
  end
end
if reason then skipped[reason] = (skipped[reason] or 0) + 1 end
