-- renew_slots: renew all leases of one process, held and waiting, of all models, in one call. An expired holder is lost,
-- unless Redis may have lost its lease: within the grace it is restored. A waiter that was granted a slot claims it,
-- except in the grace; one that Redis does not know enters the room again at the position it had.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- then for each model: model, limits (see limits_of in include upstream), number of holders, number of waiters, for each holder its lease id
-- and its upstream, and for each waiter its lease id and its ticket (empty for a new one)
--
-- Returns {code, now, models, promotions}: code is RENEWED, now Redis's clock in ms, promotions see include model_waiters; per model
-- {next, holders, waiters}:
--   next     ms until a slot may become free without a notification, 0 when no lease waits
--   holders  for each HELD (renewed or restored) or LOST
--   waiters  for each {code, upstream, position, ticket} as returned by acquire_slot: HELD, GRANTED or WAITING

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local models, at, readable = {}, 5, call.ttl and call.grant and call.known
while readable and ARGV[at] do
  local m = { name = ARGV[at], limits = ARGV[at + 1], held = {}, waits = {} }
  local held, waits = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  readable = held and waits and limits_of(m.limits)
  at = at + 4
  for _ = 1, readable and held or 0 do
    readable = readable and ARGV[at + 1] and ARGV[at + 1] ~= '' and is_lease(ARGV[at])
    table.insert(m.held, { lease = ARGV[at], upstream = ARGV[at + 1] })
    at = at + 2
  end
  for _ = 1, readable and waits or 0 do
    readable = readable and ARGV[at + 1] and is_lease(ARGV[at]) and parse_ticket(ARGV[at + 1])
    table.insert(m.waits, { lease = ARGV[at], ticket = ARGV[at + 1] })
    at = at + 2
  end
  table.insert(models, m)
end
if not readable then return redis.error_reply('ERR renew_slots: unreadable argument') end

local forgotten = grace_of(call) > 0
local replies = {}
for _, m in ipairs(models) do
  local room = room_of(call, m.name, m.limits)
  purge(room)
  local holders, waiters, claimed = {}, {}, {}
  for i, h in ipairs(m.held) do
    local u = held_by(room, h.lease)
    if u or forgotten or redis.call('ZSCORE', room.holders, h.lease) then
      if forgotten then leave(room, h.lease) end
      hold(room, h.lease, (flow_of(room, h.lease)), u or upstream_named(room, h.upstream), call.now + call.ttl)
      holders[i] = 'HELD'
    else
      holders[i] = 'LOST'
    end
  end
  for _, w in ipairs(m.waits) do
    local flow = flow_of(room, w.lease)
    revoke_unclaimed(room, w.lease, flow)
    local u = held_by(room, w.lease)
    if u then
      hold(room, w.lease, flow, u, call.now + call.ttl)
      claimed[w.lease] = u
    else
      join(room, w.lease, w.ticket)
      room.mine[w.lease] = true
    end
  end
  serve(room)
  for i, w in ipairs(m.waits) do
    if claimed[w.lease] then
      waiters[i] = { 'HELD', claimed[w.lease].name, 0, '' }
    elseif redis.call('ZSCORE', room.waiting, w.lease) then
      waiters[i] = { 'WAITING', '', position_of(room, w.lease) }
    else
      waiters[i] = { 'GRANTED', room.mine[w.lease].name, 0, '' }
    end
  end
  table.insert(replies, { next_expiry(room), holders, waiters })
end
return { 'RENEWED', whole(call.now), replies, call.promotions }
