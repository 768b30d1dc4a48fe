-- Sets `reasons` to why no node can take the job, reasons and numbers alternating, and `missing` to the required capabilities that no
-- registered node has. It counts all nodes of the pool in the statistics. See include request.
-- include lacks

-- count_pool adds up the numbers of the pool's nodes by reason, in its first 256 classes. It returns nil where it has no node.
local function count_pool()
  local classes, all = redis.call('ZRANGE', pool_key(stem, pool, 'classes'), 0, 255), {}
  if #classes == 0 then return nil end
  for _, of_pool in ipairs(classes) do
    local state = redis.call('HGETALL', class_key(stem, of_pool, 'state'))
    local _, why_not = lacks(services, of_pool)
    for i = 1, #state, 2 do
      local reason, n = state[i], tonumber(state[i + 1])
      if reason == 'free' or reason == 'full' and why_not == 'service_missing' then reason = why_not end
      if reason and n > 0 then all[reason] = (all[reason] or 0) + n end
    end
  end
  return all
end

local all, kept, capabilities, reasons, missing = count_pool(), skipped, {}, {}, {}
local known = all or redis.call('HEXISTS', stem .. 'config:pools', pool) == 1
for capability in string.gmatch(required, '[^\n]+') do capabilities[#capabilities + 1] = capability end
if #capabilities > 0 then
  for i, n in ipairs(redis.call('HMGET', stem .. 'capabilities', unpack(capabilities))) do
    if not n then missing[#missing + 1] = capabilities[i] end
  end
end
if listed == '' then skipped = all or {} end
skipped.excluded, skipped.not_in_pool = kept.excluded, kept.not_in_pool
if #missing > 0 then skipped.capability_missing = 1 end
-- include count_skipped
for why_not, n in pairs(skipped) do
  reasons[#reasons + 1] = why_not
  reasons[#reasons + 1] = whole(n)
end
