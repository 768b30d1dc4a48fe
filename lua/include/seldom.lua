-- What few choices of a node need: see include choose.

-- lacks tells that a service which the job needs is marked unavailable on the node (L10).
local function lacks(want, node)
  if tonumber(redis.call('HGET', node.key, 'unavailable_until')) <= want.now then return false end
  for service in string.gmatch(want.services, '[^\n]+') do
    local till = redis.call('HGET', want.stem .. 'node:unavailable:' .. node.id, service)
    if till and tonumber(till) > want.now then return true end
  end
  return false
end

-- another is the node at the other rank, if there is one, or the first usable one of an index, from the lowest score on;
-- without another rank, the first of them was looked at already.
local function another(want, index, other)
  local node = other and usable(want, redis.call('ZRANGE', index, other, other)[1])
  if node then return node end
  local from = other and 0 or 1
  while from < MOST do
    local ids = redis.call('ZRANGE', index, from, from + 16, 'WITHSCORES')
    if #ids == 0 then return nil end
    for i = 1, #ids, 2 do
      if tonumber(ids[i + 1]) >= BEHIND then return nil end
      node = usable(want, ids[i])
      if node then return node end
    end
    from = from + 17
  end
  return nil
end

-- passed counts for whom it could not be, and on failure everybody; it answers reasons and numbers in turn.
local function passed(want, failed)
  local reasons = {}
  if failed then
    local all, kept = redis.call('HGETALL', pool_key(want.stem, want.pool, 'state')), want.skipped or {}
    want.skipped = { excluded = kept.excluded, service_unavailable = kept.service_unavailable, not_in_pool = kept.not_in_pool }
    for i = 1, #all, 2 do
      if all[i] ~= 'turn' and all[i] ~= 'free' and tonumber(all[i + 1]) > 0 then want.skipped[all[i]] = tonumber(all[i + 1]) end
    end
    if #want.missing > 0 then want.skipped.capability_missing = 1 end
  end
  for reason, n in pairs(want.skipped) do
    redis.call('HINCRBY', want.stem .. 'stats:excludes', want.pool .. '|' .. reason, whole(n))
    reasons[#reasons + 1] = reason
    reasons[#reasons + 1] = whole(n)
  end
  return reasons
end

-- missing names the capabilities of a list, one per line, that no living node has.
local function missing(stem, required)
  local asked, out = {}, {}
  for c in string.gmatch(required or '', '[^\n]+') do asked[#asked + 1] = c end
  if #asked == 0 then return out end
  for i, n in ipairs(redis.call('HMGET', stem .. 'capabilities', unpack(asked))) do
    if not n then out[#out + 1] = asked[i] end
  end
  return out
end
