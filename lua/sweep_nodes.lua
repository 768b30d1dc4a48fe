-- sweep_nodes: declare nodes suspect and dead by their last heartbeat, in Redis's clock. Every worker calls it about once a
-- second. Only this script declares nodes dead; report_unresponsive also makes them suspect. It also removes expired
-- leases and marks of services, ends drains at their deadline, and deletes nodes that died long ago. The time of heartbeats counts from the first
-- sweep after a gap without sweeps, or without an API process that accepts heartbeats, and from the beginning of a grace:
-- heartbeats missed in the gap, or while another server was the master, prove nothing. A mass loss, more than half of ten or more nodes of a kind, is held back for a time unless it was confirmed.
--
-- KEYS[1] state of the sweep
-- KEYS[2] nodes with a drain, by deadline
-- KEYS[3] dead nodes
-- KEYS[4] guard
-- then for each kind: heartbeats, suspects
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] maximum number of nodes to declare suspect, to declare dead, and to remove expired leases of
-- ARGV[3] ms without a sweep, or without an API process that accepts heartbeats, that make a gap
-- ARGV[4] ms for which a mass loss is held back
-- ARGV[5] ms that a grace lasts
-- then for each kind: kind, ms without a heartbeat until suspect, until dead, 1 when a mass loss was confirmed
--
-- Returns {code, suspects, deaths, held, purged}
--   SWEPT  suspects: nodes declared suspect; deaths: node and generation of each declared dead, one per line;
--          held: kinds whose losses are held back; purged: number of nodes checked for expired leases

-- include fleet
-- include settle
-- include pools

local sweep, draining, dead = KEYS[1], KEYS[2], KEYS[3]
local stem, limit, max_gap, mass_loss_delay = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local grace_time = tonumber(ARGV[5])
if not (limit and max_gap and mass_loss_delay and grace_time) then return redis.error_reply('ERR sweep_nodes: not a number') end
local kinds = {}
for i = 6, #ARGV, 4 do
  local kind = {
    name = ARGV[i], suspect = tonumber(ARGV[i + 1]), death = tonumber(ARGV[i + 2]), confirmed = ARGV[i + 3] == '1',
    beats = KEYS[5 + (i - 6) / 2], suspects = KEYS[6 + (i - 6) / 2],
  }
  if not (kind.suspect and kind.death) then return redis.error_reply('ERR sweep_nodes: not a number') end
  kinds[#kinds + 1] = kind
end

local now = clock()
local state = redis.call('HMGET', sweep, 'last_ms', 'seen_from_ms', 'listened_ms')
local observed = tonumber(state[2])
if now - tonumber(state[1] or 0) > max_gap or now - tonumber(state[3] or now) > max_gap then observed = now end
observed = math.max(observed, tonumber(redis.call('HGET', KEYS[4], 'grace') or '0') - grace_time)
redis.call('HSET', sweep, 'last_ms', whole(now), 'seen_from_ms', whole(observed))

local suspected, deaths, held = {}, {}, {}
for _, kind in ipairs(kinds) do
  if now - observed > kind.suspect then
    local overdue = redis.call('ZRANGEBYSCORE', kind.beats, '-inf', whole(now - kind.suspect), 'WITHSCORES', 'LIMIT', 0, limit)
    for i = 1, #overdue, 2 do
      local node = state_of(node_of(stem, overdue[i]))
      redis.call('ZREM', kind.beats, overdue[i])
      if node then
        redis.call('ZADD', kind.suspects, whole(tonumber(overdue[i + 1])), node.id)
        write_state(stem, node, 'suspect', now)
        settle(stem, node, leases_of(node, now))
-- include announce
        announce(stem, node.id, 'suspect')
        suspected[#suspected + 1] = node.id
      end
    end
  end

  local lost, held_since = redis.call('ZCARD', kind.suspects), 'held_since_ms:' .. kind.name
  local all = lost + redis.call('ZCARD', kind.beats)
  local hold = false
  if all >= 10 and lost * 2 > all then
    local since = tonumber(redis.call('HGET', sweep, held_since))
    if not since then
      since = now
      redis.call('HSET', sweep, held_since, whole(now))
    end
    hold = not kind.confirmed and now - since < mass_loss_delay
  else
    redis.call('HDEL', sweep, held_since)
  end
  if now - observed > kind.death then
    local due = redis.call('ZRANGEBYSCORE', kind.suspects, '-inf', whole(now - kind.death), 'LIMIT', 0, limit)
    if hold and #due > 0 then
      held[#held + 1] = kind.name
    elseif not hold then
      for _, id in ipairs(due) do
        local node = state_of(node_of(stem, id))
        redis.call('ZREM', kind.suspects, id)
        if node then
          end_generation(stem, node, now, 'unresponsive')
          deaths[#deaths + 1] = id .. '\n' .. node.generation
        end
      end
    end
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', draining, '-inf', whole(now), 'LIMIT', 0, limit)) do
  redis.call('ZREM', draining, id)
  local node = node_of(stem, id)
  if node then notify(stem, node, now, 'drained') end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', dead, '-inf', whole(now - LIFETIME * 1000), 'LIMIT', 0, limit)) do
  local node = state_of(node_of(stem, id))
  redis.call('ZREM', dead, id)
  if node and node.state == 'dead' then delete_node(stem, node, now) end
end
purge_marks(stem, now, limit)
return { 'SWEPT', suspected, deaths, held, purge_due(stem, now, limit) }
