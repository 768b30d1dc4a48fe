-- Chooses the node with the lowest load of the listed ones, or with round-robin the next one by its id. The caller listed those that had
-- the required capabilities when it last read the fleet. Part of include pick.
-- include settle
-- include lacks
-- include score
if asked == '' or asked == 'power-of-two' then strategy = 'load-balanced' end
skipped = {} -- it may be chosen again
local found, last = {}, asked == 'round-robin' and redis.call('GET', pool_key(stem, pool, 'rotation'))
for id in string.gmatch(listed, '[^\n]+') do
-- include try
  local _, why_not
  if node or reason == 'full' then _, why_not = lacks(services, class) end
  if not node and why_not == 'service_missing' then -- it cannot take the job when it is free either
    skipped.full = skipped.full > 1 and skipped.full - 1 or nil
  elseif not node then
    why_not = nil
  elseif why_not == 'service_unavailable' then
    local marked = node_of(stem, id)
    remark(stem, marked, now) -- the service may be available again
    class = marked.class
    _, why_not = lacks(services, class)
  end
  if why_not then node, skipped[why_not] = nil, (skipped[why_not] or 0) + 1 end
  if node then
    local score = tonumber(load_of(leases, base, active, max, each, seen))
    if asked == 'round-robin' then score = last and id <= last and 1 or 0 end
    found[#found + 1] = {
      id = id, score = score, own = id == own, leases = leases, class = class, generation = generation, base = base, active = active,
      max = max, each = each, seen = seen,
    }
  end
  node = nil
end
local prefers = asked == 'affinity' or asked == 'locality'
table.sort(found, function(a, b)
  if prefers and a.own ~= b.own then return a.own end
  return before(a.score, a.id, b.score, b.id)
end)

-- has_required reports whether the node has the required capabilities now.
local function has_required(id)
  local capabilities = '\n' .. spec_of(stem, id).capabilities .. '\n'
  for capability in string.gmatch(required, '[^\n]+') do
    if not string.find(capabilities, '\n' .. capability .. '\n', 1, true) then return false end
  end
  return true
end

for _, candidate in ipairs(found) do
  if has_required(candidate.id) then
    node, leases, position, class, generation = candidate.id, candidate.leases, candidate.id, candidate.class, candidate.generation
    base, active, max, each, seen = candidate.base, candidate.active, candidate.max, candidate.each, candidate.seen
    break
  end
  skipped.capability_missing = (skipped.capability_missing or 0) + 1
end
