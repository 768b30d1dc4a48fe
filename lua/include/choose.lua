-- Choosing a node and taking its slot. Needs include fleet. A script defines its functions in each call, and Lua has to collect them and
-- its tables, which took half of a decision. So a decision defines and stores only what it uses: include request, pick, pick_named,
-- reserve and write_lease are not functions but parts of the script, which share local variables:
--   want      the search, a table: stem, now, pool; services and excluded nodes, one per line; skipped: reason -> number of nodes;
--             turn: for round-robin. With more than eight fields it would take twice the memory
--   asked     the pool's strategy
--   random, own, places, required, listed, lease, ttl  see assign
--   node      the chosen node, a table: id, generation, class and what load_of needs
--   leases    how many it has
--   strategy  the one that chose it

-- usable returns the node and its number of leases if it can take the job, else nil and the reason, which it counts. The caller may know
-- a reason. It does not check the services: the classes that are searched have them.
local function usable(want, id, reason)
  if not reason and want.excluded ~= '' and string.find(want.excluded, '\n' .. id .. '\n', 1, true) then reason = 'excluded' end
  if not reason then
    local generation, base, active, max, out, each, seen, class = read_brief(want.stem, id)
    reason = generation and out or 'offline'
    if reason == '' then
      local leases = redis.call('ZCOUNT', want.stem .. 'node:slots:' .. id, whole(want.now + 1), '+inf')
      if leases < max + 0 then
        return {
          id = id, generation = generation, class = class, base = base + 0, active = active + 0, max = max + 0, each = each + 0,
          seen = seen + 0,
        }, leases
      end
      reason = 'full'
    end
  end
  want.skipped[reason] = (want.skipped[reason] or 0) + 1
  return nil, reason
end
