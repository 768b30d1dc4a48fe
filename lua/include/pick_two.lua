-- Chooses the less loaded of two random nodes, with power-of-two, and without a strategy in a pool of more than LARGE nodes. The index
-- of a class is ordered by load: in one class, that is the node with the lower rank. Part of include pick.
local LARGE = 50
local n, free, counts = 0, nil, classes[2] and {}
for i = 1, #classes do
  free = class_key(stem, classes[i], 'free')
  local size = redis.call('ZCARD', free)
  n = n + size
  if counts then counts[i] = size end
end
strategy = asked == '' and n <= LARGE and 'load-balanced' or 'power-of-two'
if strategy == 'power-of-two' and n > 0 then
-- include pair
  if not counts then
    local rank = whole(i)
    local id = redis.call('ZRANGE', free, rank, rank)[1]
-- include try
    if not node and i ~= j then
      id = redis.call('ZRANGE', free, j, j)[1]
-- include try
    end
  else
-- include located
-- include score
    local ci, ri = located(counts, i)
    local cj, rj = located(counts, j)
    local one = redis.call('ZRANGE', class_key(stem, classes[ci], 'free'), ri, ri, 'WITHSCORES')
    local other = redis.call('ZRANGE', class_key(stem, classes[cj], 'free'), rj, rj, 'WITHSCORES')
    if before(score_of(other[2]), other[1], score_of(one[2]), one[1]) then one, other = other, one end
    local id = one[1]
-- include try
    if not node and i ~= j then
      id = other[1]
-- include try
    end
  end
end
