-- renew_slots: renew all leases of one process, held and waiting, of all models, in one call. An expired holder is lost,
-- unless Redis may have lost its lease: within the grace it is restored. A waiter that was granted a slot claims it,
-- except in the grace; one that Redis does not know enters the queue again with the order it had.
--
-- KEYS[1] guard; then for each model: holders, waiters, waiting, state
-- ARGV[1] lease time in ms
-- ARGV[2] time in ms within which a grant has to be claimed
-- ARGV[3] prefix of the wake channels
-- ARGV[4] last epoch of the guard that the caller has seen
-- then for each model: model, cap, number of holders, number of waiters, the holders' lease ids, and
-- for each waiter its lease id and its order (0 for a new one)
--
-- Returns {code, now, models}: code is RENEWED, now Redis's clock in ms; per model {next, holders, waiters}:
--   next     ms until a slot may become free without a notification, 0 when no lease waits
--   holders  for each HELD (renewed or restored) or LOST
--   waiters  for each {code, position, order} as returned by acquire_slot: HELD, GRANTED or WAITING

-- include queue

local ttl, grant, wake, known = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if not (ttl and grant and known) then return redis.error_reply('ERR renew_slots: not a number') end
local queues, at = {}, 5
for k = 2, #KEYS, 4 do
  local queue = {
    guard = KEYS[1], holders = KEYS[k], waiters = KEYS[k + 1], waiting = KEYS[k + 2], state = KEYS[k + 3],
    model = ARGV[at], cap = tonumber(ARGV[at + 1]), ttl = ttl, grant = grant, wake = wake, known = known, held = {}, waits = {},
  }
  local held, waits = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  if not (queue.cap and held and waits) then return redis.error_reply('ERR renew_slots: not a number') end
  at = at + 4
  for _ = 1, held do
    table.insert(queue.held, ARGV[at])
    at = at + 1
  end
  for _ = 1, waits do
    local order = tonumber(ARGV[at + 1])
    if not order then return redis.error_reply('ERR renew_slots: not a number') end
    table.insert(queue.waits, { lease = ARGV[at], order = order })
    at = at + 2
  end
  table.insert(queues, queue)
end

local now = clock()
local forgotten = grace(KEYS[1], now, ttl, known) > 0
local replies = {}
for _, queue in ipairs(queues) do
  purge(queue, now)
  local holders, waiters, mine, claimed = {}, {}, {}, {}
  for i, lease in ipairs(queue.held) do
    if forgotten or redis.call('ZSCORE', queue.holders, lease) then
      redis.call('ZREM', queue.waiters, lease)
      redis.call('ZREM', queue.waiting, lease)
      redis.call('ZADD', queue.holders, whole(now + ttl), lease)
      holders[i] = 'HELD'
    else
      holders[i] = 'LOST'
    end
  end
  for _, w in ipairs(queue.waits) do
    revoke_unclaimed(queue, now, w.lease)
    if redis.call('ZSCORE', queue.holders, w.lease) then
      redis.call('ZADD', queue.holders, whole(now + ttl), w.lease)
      claimed[w.lease] = true
    else
      join(queue, now, w.lease, w.order)
      mine[w.lease] = true
    end
  end
  grant_free_slots(queue, now, mine)
  for i, w in ipairs(queue.waits) do
    local order = redis.call('ZSCORE', queue.waiters, w.lease)
    if claimed[w.lease] then
      waiters[i] = { 'HELD', 0, '0' }
    elseif not order then
      waiters[i] = { 'GRANTED', 0, '0' }
    else
      waiters[i] = { 'WAITING', redis.call('ZRANK', queue.waiters, w.lease), whole(tonumber(order)) }
    end
  end
  table.insert(replies, { next_expiry(queue, now), holders, waiters })
end
return { 'RENEWED', whole(now), replies }
