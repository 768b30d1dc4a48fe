-- Splits `detail`, which has six texts as assign gets them, and begins a decision. Needs include fleet. Lua defines the functions of a
-- script in each call and has to collect them and its tables, which took half of a decision. So the parts of a decision are not
-- functions: pick chooses a node, pick_named a given one, reserve takes its slot, write_lease writes the assignment. They share these
-- variables, which the script sets:
--   stem, now, lease, ttl, pool, random; asked: the pool's strategy; own, locations, services, excluded, required, listed: see assign
-- and these, which they set:
--   node      id of the chosen node; generation, class, base, active, max, each, seen: see write_brief in include settle
--   leases    how many it has
--   strategy  the one that chose it
--   reason    why the node that was tried last cannot take the job
--   skipped   reason -> number of nodes
--   position  where round-robin is then
local own, locations, services, excluded, required, listed =
  string.match(detail, '^([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2$')
local skipped, position, reason, generation, class, base, active, max, each, seen = {}, nil, nil, nil, nil, nil, nil, nil, nil, nil
