-- Chooses the node with the lowest load of the listed ones, or with round-robin the next one by its id. The caller listed those that had
-- the required capabilities when it last read the fleet. Part of include pick.
-- include settle
-- include lacks
-- include score
if asked == '' or asked == 'power-of-two' then strategy = 'load-balanced' end
local found, last = {}, asked == 'round-robin' and redis.call('GET', pool_key(want.stem, want.pool, 'turn'))
want.skipped = {} -- it may be chosen again
for id in string.gmatch(listed, '[^\n]+') do
  local candidate, held = usable(want, id)
  if candidate and lacks(want, candidate.class) then
    local whole_node = node_of(want.stem, id)
    remark(want.stem, whole_node, want.now) -- the service may be available again
    candidate.class = whole_node.class
    if lacks(want, candidate.class) then candidate = usable(want, id, 'service_unavailable') end
  end
  if candidate then
    local score = tonumber(load_of(candidate, held))
    if asked == 'round-robin' then score = last and id <= last and 1 or 0 end
    found[#found + 1] = { node = candidate, leases = held, score = score, id = id, own = id == own }
  end
end
local prefers = asked == 'affinity' or asked == 'locality'
table.sort(found, function(a, b)
  if prefers and a.own ~= b.own then return a.own end
  return before(a.score, a.id, b.score, b.id)
end)

-- has_required reports whether the node has the required capabilities now.
local function has_required(id)
  local capabilities = '\n' .. spec_of(want.stem, id).capabilities .. '\n'
  for capability in string.gmatch(required, '[^\n]+') do
    if not string.find(capabilities, '\n' .. capability .. '\n', 1, true) then return false end
  end
  return true
end

for _, candidate in ipairs(found) do
  if has_required(candidate.id) then
    node, leases, want.turn = candidate.node, candidate.leases, candidate.id
    break
  end
  usable(want, candidate.id, 'capability_missing')
end
