-- Sets `reasons` to why no node can take the job, reasons and numbers alternating, and `missing` to the required capabilities that no
-- registered node has. It counts all nodes of the pool in the statistics. See include request.
-- include lacks

-- count_pool adds up the numbers of the pool's nodes by reason, in its first 256 classes. It returns nil where it has no node.
local function count_pool()
  local classes, all, unavailable = redis.call('ZRANGE', pool_key(stem, pool, 'classes'), 0, 255), {}, 0
  if #classes == 0 then return nil end
  for _, of_pool in ipairs(classes) do
    local state = redis.call('HGETALL', class_key(stem, of_pool, 'state'))
    for i = 1, #state, 2 do
      local n = tonumber(state[i + 1])
      if state[i] == 'free' then
        if lacks(services, of_pool) then unavailable = unavailable + n end
      elseif n > 0 then
        all[state[i]] = (all[state[i]] or 0) + n
      end
    end
  end
  if unavailable > 0 then all.service_unavailable = unavailable end
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
