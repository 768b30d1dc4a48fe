-- end_stream: append the terminal event and close the stream. It is not fenced: the database has decided the end, and only
-- the process that wrote this decision calls the script. Idempotent.
--
-- KEYS[1]  meta hash
-- KEYS[2]  stream
-- ARGV[1]  Pub/Sub channel
-- ARGV[2]  the terminal event as JSON
-- ARGV[3]  time to live of both keys from now, in ms
-- ARGV[4]  approximate length to which the stream is trimmed; 0 leaves it whole
-- ARGV[5]  event of the operator stream about the end
-- ARGV[6]  prefix of the keys
--
-- Returns {code, last id}
--   OK      appended, published, closed
--   ENDED   closed before; nothing was appended
--   ABSENT  stream not found; nothing was appended

-- include operator

local meta, stream = KEYS[1], KEYS[2]
local channel, event, ttl, trim = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local found = redis.call('HMGET', meta, 'state', 'gen', 'seq')
local state, gen, seq = found[1], found[2], found[3]
if not state then
  return { 'ABSENT', '' }
end
if state ~= 'open' then
  return { 'ENDED', gen .. '-' .. seq }
end

seq = string.format('%.0f', tonumber(seq) + 1)
local last = gen .. '-' .. seq
redis.call('XADD', stream, last, 'e', event)
redis.call('HSET', meta, 'state', 'ended', 'seq', seq)
redis.call('HDEL', meta, 'recent')
redis.call('PUBLISH', channel, last .. ' ' .. event)
redis.call('PEXPIRE', meta, ttl)
redis.call('PEXPIRE', stream, ttl)
if trim > 0 then
  redis.call('XTRIM', stream, 'MAXLEN', '~', trim)
end
operator_event(ARGV[6], ARGV[5])
return { 'OK', last }
