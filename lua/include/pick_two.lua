-- Chooses the less loaded of two random nodes, with power-of-two, and without a strategy in a pool of more than LARGE nodes. The index
-- of a class is ordered by load: in one class, that is the node with the lower rank. Part of include pick.
local LARGE = 50
local counts, n, free = {}, 0, nil
for i = 1, #classes do
  free = class_key(want.stem, classes[i], 'free')
  counts[i] = redis.call('ZCARD', free)
  n = n + counts[i]
end
strategy = asked == '' and n <= LARGE and 'load-balanced' or 'power-of-two'
if strategy == 'power-of-two' and n > 0 then
-- include pair
  local i, j = pair(random, n)
  if not classes[2] then
    local rank = whole(i)
    node, leases = usable(want, redis.call('ZRANGE', free, rank, rank)[1])
    if not node and i ~= j then node, leases = usable(want, redis.call('ZRANGE', free, j, j)[1]) end
  else
-- include located
-- include score
    local ci, ri = located(counts, i)
    local cj, rj = located(counts, j)
    local one = redis.call('ZRANGE', class_key(want.stem, classes[ci], 'free'), ri, ri, 'WITHSCORES')
    local other = redis.call('ZRANGE', class_key(want.stem, classes[cj], 'free'), rj, rj, 'WITHSCORES')
    if before(score_of(other[2]), other[1], score_of(one[2]), one[1]) then one, other = other, one end
    node, leases = usable(want, one[1])
    if not node and i ~= j then node, leases = usable(want, other[1]) end
  end
end
