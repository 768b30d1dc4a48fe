-- append_turn_events: append the next events of a turn to its session's stream and publish each. The stream is opened if
-- there is none; it never ends. A turn numbers its events from 1. Events that were appended before are left out, so that
-- a call repeated after a lost reply changes nothing. Where Redis has lost the stream, a new generation of ids continues
-- with the given number.
--
-- KEYS[1]  meta hash: state, gen, seq, fence as in open_stream; turns: the last 64 turns, one per line, newest first;
--          turn:{id}: the number of its last event
-- KEYS[2]  stream
-- ARGV[1]  Pub/Sub channel
-- ARGV[2]  turn id
-- ARGV[3]  number of the first event
-- ARGV[4]  ms for which both keys are kept from now
-- ARGV[5]  approximate length to which the stream is trimmed; 0 leaves it whole
-- ARGV[6]  prefix of the keys
-- ARGV[7…] pairs: the event as JSON; the event of the operator stream about it
--
-- Each event becomes entry {gen}-{seq} with field e = JSON, and the message "{id} {json}" on the channel.
--
-- Returns {code, last id}
--   OK     appended, now or before
--   ENDED  the stream has an end, so it is not a session's; nothing changed

-- include operator

local meta, stream = KEYS[1], KEYS[2]
local channel, turn, number, ttl, trim = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if not (number and ttl and trim) then return redis.error_reply('ERR append_turn_events: not a number') end
local REMEMBERED = 64

local field = 'turn:' .. turn
local found = redis.call('HMGET', meta, 'state', 'gen', 'seq', field)
local state, gen, seq, last = found[1], found[2], found[3], tonumber(found[4] or '0')
if state and state ~= 'open' then return { 'ENDED', gen .. '-' .. seq } end
local first, count = 7 + 2 * math.max(0, last + 1 - number), (#ARGV - 6) / 2
if state and #ARGV < first then return { 'OK', gen .. '-' .. seq } end

if not state then
  gen, seq = new_generation(stream), '0'
  redis.call('HSET', meta, 'state', 'open', 'gen', gen, 'fence', '0')
end
for i = first, #ARGV, 2 do
  seq = string.format('%.0f', tonumber(seq) + 1)
  redis.call('XADD', stream, gen .. '-' .. seq, 'e', ARGV[i])
  redis.call('PUBLISH', channel, gen .. '-' .. seq .. ' ' .. ARGV[i])
  operator_event(ARGV[6], ARGV[i + 1])
end
redis.call('HSET', meta, 'seq', seq, field, string.format('%.0f', number + count - 1))
if not found[4] then
  local turns, n = turn .. '\n', 1
  for other in string.gmatch(redis.call('HGET', meta, 'turns') or '', '[^\n]+') do
    if n < REMEMBERED then
      turns, n = turns .. other .. '\n', n + 1
    else
      redis.call('HDEL', meta, 'turn:' .. other)
    end
  end
  redis.call('HSET', meta, 'turns', turns)
end
if trim > 0 then redis.call('XTRIM', stream, 'MAXLEN', '~', trim) end
redis.call('PEXPIRE', meta, ttl)
redis.call('PEXPIRE', stream, ttl)
return { 'OK', gen .. '-' .. seq }
