-- Why no node can take the job. Needs include choose.

-- include lacks

-- count_pool adds up the numbers of the pool's nodes by reason, in its first 256 classes. It returns nil where it has no node.
local function count_pool(want)
  local classes, all, unavailable = redis.call('ZRANGE', pool_key(want.stem, want.pool, 'classes'), 0, 255), {}, 0
  if #classes == 0 then return nil end
  for _, class in ipairs(classes) do
    local state = redis.call('HGETALL', class_key(want.stem, class, 'state'))
    for i = 1, #state, 2 do
      local n = tonumber(state[i + 1])
      if state[i] == 'free' then
        if lacks(want, class) then unavailable = unavailable + n end
      elseif n > 0 then
        all[state[i]] = (all[state[i]] or 0) + n
      end
    end
  end
  if unavailable > 0 then all.service_unavailable = unavailable end
  return all
end

-- missing returns the capabilities of a list, one per line, that no registered node has.
local function missing(stem, required)
  local wanted, out = {}, {}
  for c in string.gmatch(required, '[^\n]+') do wanted[#wanted + 1] = c end
  if #wanted == 0 then return out end
  for i, n in ipairs(redis.call('HMGET', stem .. 'capabilities', unpack(wanted))) do
    if not n then out[#out + 1] = wanted[i] end
  end
  return out
end

-- refused returns why no node can take the job, reasons and numbers alternating, and the missing capabilities. It counts all nodes
-- of the pool in the statistics.
local function refused(want, listed, required)
  local all = count_pool(want)
  local known = all or redis.call('HEXISTS', want.stem .. 'config:pools', want.pool) == 1
  local kept, lacking, reasons = want.skipped, missing(want.stem, required), {}
  if listed == '' then want.skipped = all or {} end
  want.skipped.excluded, want.skipped.not_in_pool = kept.excluded, kept.not_in_pool
  if #lacking > 0 then want.skipped.capability_missing = 1 end
-- include count_skipped
  for reason, n in pairs(want.skipped) do
    reasons[#reasons + 1] = reason
    reasons[#reasons + 1] = whole(n)
  end
  return reasons, lacking
end
