-- Counts the nodes that were skipped in the statistics. Pools that are not `known` are counted together, because requests name them.
local MAX_STATISTICS = 10000 -- rows of the statistics
local OTHERS = '*' -- the row of pools that are not counted by name
local statistics, prefix = stem .. 'stats:excludes', (known and pool or OTHERS) .. '|'
for why_not, n in pairs(skipped) do
  local row, by = prefix .. why_not, n == 1 and '1' or whole(n)
  if redis.call('HINCRBY', statistics, row, by) == n and known and redis.call('HLEN', statistics) > MAX_STATISTICS then
    redis.call('HDEL', statistics, row) -- it was not there before
    redis.call('HINCRBY', statistics, OTHERS .. '|' .. why_not, by)
  end
end
