-- finalize_turn: delete a turn's affinity. It cannot be restored: a job that is dispatched late finds the turn among the
-- last ended turns of the session. Idempotent.
--
-- KEYS[1] turn
-- KEYS[2] session
-- ARGV[1] turn id
-- ARGV[2] channel of updated sessions
-- ARGV[3] 1 when the turn never began: it is not remembered as ended, since its id may be used again
--
-- Returns {code, node}: the turn's node, '' when it had none
--   OK     ended now
--   ENDED  ended before

local turn, session, id, withdraw = KEYS[1], KEYS[2], ARGV[1], ARGV[3] == '1'
local node = redis.call('HGET', turn, 'affinity_node_id')
local found = redis.call('HMGET', session, 'ended_turns', 'current_turn_id', 'routing_key')
local ended = found[1] or '\n'
if not node and string.find(ended, '\n' .. id .. '\n', 1, true) then return { 'ENDED', '' } end

redis.call('HDEL', turn, 'affinity_node_id')
local keep, n = '\n' .. id .. '\n', 1
for other in string.gmatch(ended, '[^\n]+') do
  if n < 16 and other ~= id then
    keep, n = keep .. other .. '\n', n + 1
  end
end
if not withdraw then redis.call('HSET', session, 'ended_turns', keep) end
if found[2] == id then redis.call('HDEL', session, 'current_turn_id') end
redis.call('EXPIRE', session, 3600)
redis.call('PUBLISH', ARGV[2], found[3] or '')
return { 'OK', node or '' }
