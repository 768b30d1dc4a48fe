-- move_pools: move nodes to the pools whose selectors match them; each moves from all its old pools to all its new ones
-- in one step. Called for the nodes that a changed definition may affect.
--
-- KEYS[1]    definitions of pools, to name the cell
-- ARGV[1]    stem of the scheduler's keys
-- ARGV[2...] node ids
--
-- Returns {code, moved}
--   OK  moved: the number of nodes whose pools changed

-- include fleet
-- include settle
-- include pools

if not KEYS[1] then return redis.error_reply('ERR move_pools: no key') end
local stem, now, moved = ARGV[1], clock(), 0
for i = 2, #ARGV do
  local node = node_of(stem, ARGV[i])
  if node then
    local spec = spec_of(stem, node.id)
    if move(stem, node, pools_of(stem, spec.kind, spec.zone, spec.capabilities), leases_of(node, now), now) then moved = moved + 1 end
  end
end
return { 'OK', moved }
