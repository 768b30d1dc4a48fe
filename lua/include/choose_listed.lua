-- Choosing among nodes that the caller listed. Part of include choose.

-- has_required reports whether the node has the required capabilities now.
local function has_required(want, node)
  local own = '\n' .. changes().spec_of(want.stem, node.id).capabilities .. '\n'
  for capability in string.gmatch(want.required, '[^\n]+') do
    if not string.find(own, '\n' .. capability .. '\n', 1, true) then return false end
  end
  return true
end

-- among returns the node with the lowest load of the listed ones, or with round-robin the next one by its id. The caller listed
-- those that had the required capabilities when it last read the fleet.
local function among(want, strategy)
  local found, last = {}, strategy == 'round-robin' and redis.call('GET', pool_key(want.stem, want.pool, 'turn'))
  want.skipped = {} -- pick may try again
  for id in string.gmatch(want.listed, '[^\n]+') do
    local node = usable(want, id)
    if node and lacks(want, node.class) then changes().remark(want.stem, node, want.now) end -- the service may be available again
    if node and lacks(want, node.class) then node = skip(want, 'service_unavailable') end
    if node then
      local score = tonumber(load_of(node, node.leases))
      if strategy == 'round-robin' then score, node.turn = last and id <= last and 1 or 0, id end
      found[#found + 1] = { node = node, score = score, id = id, own = id == want.own }
    end
  end
  local prefers = strategy == 'affinity' or strategy == 'locality'
  table.sort(found, function(a, b)
    if prefers and a.own ~= b.own then return a.own end
    return before(a.score, a.id, b.score, b.id)
  end)
  for _, candidate in ipairs(found) do
    if has_required(want, candidate.node) then return candidate.node end
    skip(want, 'capability_missing')
  end
  return nil
end
