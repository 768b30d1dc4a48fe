-- learned_cap returns the automatic cap of an upstream by its limits and what was learned.
local function learned_cap(u, learned) return math.max(u.min, math.min(tonumber(learned or nil) or u.min, u.cap)) end
