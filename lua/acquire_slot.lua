-- acquire_slot: take a slot of a model, claim one that was granted, or wait for one. Idempotent by lease id. A lease
-- that enters the room again passes its ticket and keeps its position.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] limits of the model, see limits_of in include upstream
-- ARGV[7] lease id
-- ARGV[8] ticket the lease had before, empty for a new one
-- ARGV[9] waiter for which the lease is requested, which ends, see include model_waiters; empty for none
--
-- Returns {code, upstream, position, ticket, next, now, promotions}:
--   HELD     it held a slot of the upstream already, or was granted one: renewed for the lease time
--   GRANTED  it holds a slot of the upstream from now on, for the lease time
--   WAITING  it waits; position: an estimate of how many leases are served before it
--   upstream: empty where it waits; ticket, position: empty and 0 unless it waits; next: ms until a slot may become free without a notification, 0 when no
--   lease waits; now: Redis's clock in ms; promotions: see include model_waiters

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local lease, ticket, waiter = ARGV[7], ARGV[8], ARGV[9]
if not (call.ttl and call.grant and call.known and limits_of(ARGV[6]) and is_lease(lease) and parse_ticket(ticket) and (waiter == '' or is_lease(waiter))) then
  return redis.error_reply('ERR acquire_slot: unreadable argument')
end

local room = room_of(call, ARGV[5], ARGV[6])
purge(room)
if waiter ~= '' then forget_waiter(room, waiter) end
local flow = flow_of(room, lease)
revoke_unclaimed(room, lease, flow)
local u = held_by(room, lease)
if u then
  hold(room, lease, flow, u, call.now + call.ttl)
  if call.freed[1] then serve(room) end
  return { 'HELD', u.name, 0, '', next_expiry(room), whole(call.now), call.promotions }
end
u = take_free_slot(room, lease)
if u then
  serve(room)
  return { 'GRANTED', u.name, 0, '', 0, whole(call.now), call.promotions }
end
join(room, lease, ticket)
room.mine[lease] = true
serve(room)
if not redis.call('ZSCORE', room.waiting, lease) then
  return { 'GRANTED', room.mine[lease].name, 0, '', next_expiry(room), whole(call.now), call.promotions }
end
local position, keeps = position_of(room, lease)
return { 'WAITING', '', position, keeps, next_expiry(room), whole(call.now), call.promotions }
