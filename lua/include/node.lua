-- Nodes, for the scripts that change them. Needs include fleet.

-- clock returns Redis's time in whole milliseconds.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- node_of returns the node with what decisions use; nil when it is not found.
local function node_of(stem, id)
  local brief = redis.call('HGET', stem .. 'node:briefs', id)
  if not brief then return nil end
  local generation, base, active, max, out, each, seen, class
-- include brief
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
  if node.class ~= '' then redis.call('ZADD', class_key(stem, node.class, 'free'), load_of(leases, node.base, node.active, node.max, node.each, node.seen), node.id) end
end
