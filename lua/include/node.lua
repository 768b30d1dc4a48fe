-- Nodes, for the scripts that change them. Needs include fleet.

-- clock returns Redis's time in whole milliseconds.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- node_of returns the node with what decisions use; nil when it is not found. `out` is the reason why it cannot be chosen, '' when it
-- can.
local function node_of(stem, id)
  local generation, base, active, max, out, each, seen, class, brief = read_brief(stem, id)
  if not generation then return nil end
  return {
    id = id, stem = stem, key = stem .. 'node:runtime:' .. id, slots = stem .. 'node:slots:' .. id, brief = brief,
    generation = generation, base = base + 0, active = active + 0, max = max + 0, out = out, each = each + 0, seen = seen + 0,
    class = class,
  }
end

-- leases_of returns the number of unexpired leases of the node.
local function leases_of(node, now) return redis.call('ZCOUNT', node.slots, whole(now + 1), '+inf') end

-- update_load updates the load of a node that could be chosen before and still can: a short form of settle.
local function update_load(stem, node, leases)
  if node.class ~= '' then redis.call('ZADD', class_key(stem, node.class, 'free'), load_of(node, leases), node.id) end
end
