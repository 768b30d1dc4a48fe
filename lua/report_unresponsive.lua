-- report_unresponsive: report that a generation did not start its work, or missed heartbeats while running it. When its own
-- heartbeat is overdue too, it becomes suspect and gets no new work: one failed job does not exclude a healthy node. Its
-- next heartbeat makes it ready again; its death is declared as if the sweep had made it suspect. As in sweep_nodes, the
-- time of heartbeats counts from the first sweep after a gap without sweeps.
--
-- KEYS[1] node
-- KEYS[2] state of the sweep
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] generation
-- then for each kind: kind, ms after which a heartbeat is overdue
--
-- Returns {code}
--   OK    suspect, now or before
--   HEARD its heartbeat is not overdue, or could not have been received: nothing changed
--   GONE  unknown, dead or another generation: nothing changed

-- include fleet
-- include settle
-- include pools

local sweep = KEYS[2]
local stem, id, generation = ARGV[1], ARGV[2], ARGV[3]
local overdue = {}
for i = 4, #ARGV, 2 do
  overdue[ARGV[i]] = tonumber(ARGV[i + 1])
  if not overdue[ARGV[i]] then return redis.error_reply('ERR report_unresponsive: not a number') end
end
local node = state_of(node_of(stem, id))
if not node or node.generation ~= generation or node.state == 'dead' then return { 'GONE' } end
if node.state == 'suspect' then return { 'OK' } end

local now, kind = clock(), spec_of(stem, id).kind
local beats, within = stem .. 'node:beats:' .. kind, overdue[kind]
local beat, swept = redis.call('ZSCORE', beats, id), redis.call('HMGET', sweep, 'last_ms', 'seen_from_ms')
if not (within and beat and swept[1] and swept[2]) then return { 'HEARD' } end
if now - tonumber(swept[1]) > within then return { 'HEARD' } end
if now - math.max(tonumber(beat), tonumber(swept[2])) <= within then return { 'HEARD' } end

redis.call('ZREM', beats, id)
redis.call('ZADD', stem .. 'node:suspects:' .. kind, whole(tonumber(beat)), id)
write_state(stem, node, 'suspect', now)
settle(stem, node, leases_of(node, now))
-- include announce
announce(stem, id, 'suspect')
return { 'OK' }
