-- Choosing a node and taking its slot, for all strategies. Needs include fleet. What few decisions need is included where it is
-- needed, because defining a function costs as much as a hundredth of a decision.
-- The request is `want`: stem, now, lease, ttl, pool, strategy, random, own; places, services, excluded, required and listed
-- (lists, one item per line), skipped (filled here: reason -> number of nodes).

local LARGE = 50 -- nodes above which a pool without a strategy compares two of them instead of all
local MAX_CLASSES = 32 -- classes of a pool that one decision compares
local TURN_LIFETIME = 3600 -- s for which round-robin remembers its last node, so that a pool that is no longer used leaves nothing
local MAX_UNFIT = 64 -- nodes that cannot take the job although the index has them, before the search ends

-- request returns a request; detail has six texts, see assign.
local function request(stem, lease, ttl, pool, strategy, random, detail, now)
  local want = { stem = stem, lease = lease, ttl = ttl, pool = pool, strategy = strategy, random = random, now = now, skipped = {} }
  want.own, want.places, want.services, want.excluded, want.required, want.listed =
    string.match(detail, '^([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2$')
  return want
end

-- asked returns the request from the arguments that assign and dispatch_job share.
local function asked(now)
  return request(ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7], now)
end

local made
-- changes returns the functions of include settle.
local function changes()
  if not made then
-- include settle
    made = { settle = settle, purge = purge, purge_due = purge_due, purge_marks = purge_marks, remark = remark, spec_of = spec_of }
  end
  return made
end

local function skip(want, reason)
  want.skipped[reason] = (want.skipped[reason] or 0) + 1
  return nil, reason
end

-- usable returns the node if it can take the job, else nil and the reason. It does not check the services: the classes that are
-- searched have them.
local function usable(want, id)
  if want.excluded ~= '' and string.find(want.excluded, '\n' .. id .. '\n', 1, true) then return skip(want, 'excluded') end
  local node = node_of(want.stem, id)
  if not node then return skip(want, 'offline') end
  if node.out ~= '' then return skip(want, node.out) end
  node.leases = leases_of(node, want.now)
  if node.leases >= node.max then return skip(want, 'full') end
  return node
end

-- lacks returns the first of the services that is marked as unavailable in a class; nil when there is none.
local function lacks(want, class)
  if want.services == '' or string.sub(class, 41) == ',' then return nil end
  for service in string.gmatch(want.services, '[^\n]+') do
    if string.find(class, ',' .. service .. ',', 1, true) then return service end
  end
  return nil
end

-- pair returns two different ranks below n, by the caller's random number of 52 bits; the lower one first.
local function pair(want, n)
  if n == 1 then return 0, 0 end
  local low = want.random % 67108864
  local i = math.floor(low / 67108864 * n)
  local j = math.floor((want.random - low) / 67108864 / 67108864 * (n - 1))
  if j >= i then j = j + 1 end
  return math.min(i, j), math.max(i, j)
end

-- by_id returns the node with the id if it can take the job, else nil and the reason.
local function by_id(want, id)
  local node = node_of(want.stem, id)
  if not node then return skip(want, 'offline') end
  if want.listed ~= '' then
    if not string.find('\n' .. want.listed .. '\n', '\n' .. id .. '\n', 1, true) then return skip(want, 'not_in_pool') end
  elseif not redis.call('ZSCORE', pool_key(want.stem, want.pool, 'classes'), node.class) then
    return skip(want, 'not_in_pool')
  end
  if lacks(want, node.class) then changes().remark(want.stem, node, want.now) end -- the service may be available again
  if lacks(want, node.class) then return skip(want, 'service_unavailable') end
  if node.out == 'full' then changes().settle(want.stem, node, changes().purge(want.stem, node, want.now)) end -- leases may have expired
  return usable(want, id)
end

-- suitable reports whether the services are available in a class.
local function suitable(want, class)
  if not lacks(want, class) then return true end
  want.skipped.service_unavailable = want.skipped.service_unavailable or 1
  return false
end

-- open_classes returns the classes of the pool in which a node can be chosen and the services are available. Of more than
-- MAX_CLASSES it looks at that many from a random one on, and at further ones only until one of them is suitable.
local function open_classes(want)
  local key, out, seen, n, from = pool_key(want.stem, want.pool, 'open'), {}, 0, 0, 0
  local found = redis.call('ZRANGE', key, 0, MAX_CLASSES)
  if #found > MAX_CLASSES then
    n = redis.call('ZCARD', key)
    from = want.random % n
    found = redis.call('ZRANGE', key, from, math.min(from + MAX_CLASSES, n) - 1)
  end
  while true do
    for _, class in ipairs(found) do
      if suitable(want, class) then out[#out + 1] = class end
    end
    seen = seen + #found
    if #out > 0 or seen >= n then return out end
    from = (from + #found) % n
    found = redis.call('ZRANGE', key, from, math.min(from + MAX_CLASSES, n) - 1)
  end
end

-- before reports whether a node with this score comes before another one.
local function before(score, id, other_score, other_id)
  return score < other_score or score == other_score and id < other_id
end

-- advance moves a cursor to the next node of its index.
local function advance(cursor)
  cursor.at = cursor.at + 2
  if cursor.at > #cursor.batch then
    cursor.batch, cursor.at = redis.call('ZRANGE', cursor.key, cursor.from, cursor.to, 'WITHSCORES'), 1
    cursor.from, cursor.to = cursor.to + 1, cursor.to + 16
  end
  cursor.id, cursor.score = cursor.batch[cursor.at], score_of(cursor.batch[cursor.at + 1])
end

-- first returns the usable node of the classes with the lowest load.
local function first(want, classes)
  if #classes == 1 then -- most often one, and its first node is suitable
    local head = redis.call('ZRANGE', class_key(want.stem, classes[1], 'free'), 0, 0)[1]
    if not head then return nil end
    local node = node_of(want.stem, head)
    if node and node.out == '' and want.excluded == '' then
      node.leases = leases_of(node, want.now)
      if node.leases < node.max then return node end
    end
  end
  local cursors, unfit = {}, 0
  for i, class in ipairs(classes) do
    cursors[i] = { key = class_key(want.stem, class, 'free'), batch = {}, at = 1, from = 0, to = 0 }
    advance(cursors[i])
  end
  while unfit < MAX_UNFIT do
    local best
    for _, c in ipairs(cursors) do
      if c.id and (not best or before(c.score, c.id, best.score, best.id)) then best = c end
    end
    if not best then return nil end
    local node, reason = usable(want, best.id)
    if node then return node end
    if reason ~= 'excluded' then unfit = unfit + 1 end -- the request bounds the excluded ones
    advance(best)
  end
  return nil
end

-- sizes returns how many nodes of each class can be chosen, and of all.
local function sizes(want, classes)
  local counts, n = {}, 0
  for i, class in ipairs(classes) do
    counts[i] = redis.call('ZCARD', class_key(want.stem, class, 'free'))
    n = n + counts[i]
  end
  return counts, n
end

-- located returns the class at a rank in all of them together, and the rank in it.
local function located(counts, rank)
  for i, n in ipairs(counts) do
    if rank < n then return i, rank end
    rank = rank - n
  end
end

-- two returns the less loaded of two random nodes. The index of a class is ordered by load, so that is the one with the lower
-- rank where both are in one class.
local function two(want, classes, counts, n)
  local i, j = pair(want, n)
  local ci, ri = located(counts, i)
  local cj, rj = located(counts, j)
  local one = redis.call('ZRANGE', class_key(want.stem, classes[ci], 'free'), ri, ri, 'WITHSCORES')
  local other
  if ci ~= cj then
    other = redis.call('ZRANGE', class_key(want.stem, classes[cj], 'free'), rj, rj, 'WITHSCORES')
    if before(score_of(other[2]), other[1], score_of(one[2]), one[1]) then one, other, ci, ri, cj, rj = other, one, cj, rj, ci, ri end
  end
  local node = usable(want, one[1])
  if node then return node end
  if i ~= j then
    other = other or redis.call('ZRANGE', class_key(want.stem, classes[cj], 'free'), rj, rj)
    node = usable(want, other[1])
  end
  return node or first(want, classes)
end

-- choose returns the node by the pool's strategy, and the strategy that decided; nil when no node can take the job.
local function choose(want)
  local strategy = want.strategy
  if want.listed ~= '' then
-- include choose_listed
    if strategy == '' or strategy == 'power-of-two' then strategy = 'load-balanced' end
    return among(want, strategy), strategy
  end
  if want.own ~= '' and (strategy == 'affinity' or strategy == 'locality') then
    local node = by_id(want, want.own)
    if node then return node, strategy end
  end
  if strategy == 'round-robin' then
-- include choose_in_turn
    return next_in_turn(want), strategy
  end
  local classes = open_classes(want)
  if #classes == 0 then return nil, strategy end
  if strategy == '' or strategy == 'power-of-two' then
    local counts, n = sizes(want, classes)
    if n == 0 then return nil, strategy end
    if strategy == 'power-of-two' or n > LARGE then return two(want, classes, counts, n), 'power-of-two' end
    strategy = 'load-balanced'
  end
  if strategy == 'locality' then
-- include choose_near
    for place in string.gmatch(want.places, '[^\n]+') do
      local node = near(want, classes, place)
      if node then return node, strategy end
    end
  end
  return first(want, classes), strategy
end

local MAX_STATISTICS = 10000 -- rows of the statistics
local OTHERS = '*' -- the row of pools that are not counted by name

-- count_exclusions adds to the statistics. Pools without nodes are counted together, because requests name them.
local function count_exclusions(want, known)
  local stats = want.stem .. 'stats:excludes'
  for reason, n in pairs(want.skipped) do
    local row = (known and want.pool or OTHERS) .. '|' .. reason
    if redis.call('HINCRBY', stats, row, whole(n)) == n and known and redis.call('HLEN', stats) > MAX_STATISTICS then
      redis.call('HDEL', stats, row) -- it was not there before
      redis.call('HINCRBY', stats, OTHERS .. '|' .. reason, whole(n))
    end
  end
end

-- refused returns why no node can take the job, reasons and numbers alternating, and the missing capabilities. It counts all nodes
-- of the pool in the statistics.
local function refused(want)
-- include choose_refused
  return explain(want)
end

-- pick chooses a node; when none can take the job, it removes expired leases and marks and chooses again.
local function pick(want)
  local node, strategy = choose(want)
  for _ = 1, 8 do
    if node or changes().purge_due(want.stem, want.now, 16) + changes().purge_marks(want.stem, want.now, 16) == 0 then break end
    node, strategy = choose(want)
  end
  return node, strategy
end

-- reserve takes the slot, and counts the nodes that were skipped for it.
local function reserve(want, node, strategy)
  if next(want.skipped) then count_exclusions(want, want.listed == '') end
  local leases = node.leases + 1
  if strategy == 'round-robin' then redis.call('SET', pool_key(want.stem, want.pool, 'turn'), node.turn, 'EX', TURN_LIFETIME) end
  redis.call('ZADD', node.slots, whole(want.now + want.ttl), want.lease)
  if leases < node.max then return update_load(want.stem, node, leases) end
  changes().settle(want.stem, node, changes().purge(want.stem, node, want.now))
end

-- PADDING ends a row. A hash with a value of more than 64 bytes is a hash table; a smaller one is a list, which Redis
-- searches from its start.
local PADDING = '\n                                                                '

-- write_lease writes the assignment of a lease that does not belong to a job.
local function write_lease(want, node, strategy)
  redis.call('HSET', want.stem .. 'leases', want.lease,
    want.pool .. '\n' .. node.id .. '\n' .. node.generation .. '\n' .. strategy .. PADDING)
end
