-- Counts the nodes that were skipped for `want` in the statistics. Pools that are not `known` are counted together, because requests
-- name them.
local MAX_STATISTICS = 10000 -- rows of the statistics
local OTHERS = '*' -- the row of pools that are not counted by name
local statistics = want.stem .. 'stats:excludes'
for reason, n in pairs(want.skipped) do
  local row = (known and want.pool or OTHERS) .. '|' .. reason
  if redis.call('HINCRBY', statistics, row, whole(n)) == n and known and redis.call('HLEN', statistics) > MAX_STATISTICS then
    redis.call('HDEL', statistics, row) -- it was not there before
    redis.call('HINCRBY', statistics, OTHERS .. '|' .. reason, whole(n))
  end
end
