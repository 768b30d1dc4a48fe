-- append_events: append events to an open stream and publish each, in one round trip.
--
-- KEYS[1]  meta hash
-- KEYS[2]  stream
-- ARGV[1]  Pub/Sub channel
-- ARGV[2]  fence of the caller: one lower than the stream's is rejected, a higher one raises it
-- ARGV[3]  append id: a call repeated after a lost reply changes nothing (the last 16 are remembered)
-- ARGV[4]  id of the last entry that the caller knows is stored, or ''
-- ARGV[5]  prefix of the keys
-- ARGV[6…] triples: event type if it may be in the stream only once, else ''; the event as JSON; the event of the operator stream
--          about it, or ''
--
-- Each event becomes entry {gen}-{seq} with field e = JSON, and the message "{id} {json}" on the channel.
--
-- Returns {code, last id}
--   OK      appended, or appended before with the same append id
--   FENCED  a newer attempt writes this stream; nothing was appended
--   ENDED   the stream has its terminal event; nothing was appended
--   ABSENT  never opened, expired, or lost with Redis's data; nothing was appended
--   LOST    Redis has lost entries that it had confirmed to the caller; nothing was appended

-- include operator

local meta, stream = KEYS[1], KEYS[2]
local channel, fence, append_id, known = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local REMEMBERED = 16

local found = redis.call('HMGET', meta, 'state', 'gen', 'seq', 'fence', 'recent')
local state, gen, seq, held, recent = found[1], found[2], found[3], found[4], found[5] or ''
if not state then
  return { 'ABSENT', '' }
end
local last = gen .. '-' .. seq
if state ~= 'open' then
  return { 'ENDED', last }
end
if tonumber(held) > fence then
  return { 'FENCED', last }
end
if string.find(recent, append_id, 1, true) then
  return { 'OK', last }
end
seq = tonumber(seq)
if known ~= '' then
  local known_gen, known_seq = string.match(known, '^(%d+)-(%d+)$')
  if known_gen ~= gen or tonumber(known_seq) > seq then
    return { 'LOST', last }
  end
end

local events, once = {}, {}
for i = 6, #ARGV, 3 do
  local field = 'once:' .. ARGV[i]
  if ARGV[i] == '' then
    events[#events + 1] = i + 1
  elseif not once[field] and redis.call('HEXISTS', meta, field) == 0 then
    once[field] = true
    events[#events + 1] = i + 1
  end
end
local fresh = redis.call('EXISTS', stream) == 0

for _, at in ipairs(events) do
  seq = seq + 1
  last = gen .. '-' .. string.format('%.0f', seq)
  redis.call('XADD', stream, last, 'e', ARGV[at])
  redis.call('PUBLISH', channel, last .. ' ' .. ARGV[at])
  if ARGV[at + 1] ~= '' then operator_event(ARGV[5], ARGV[at + 1]) end
end
if fresh and #events > 0 then
  local left = redis.call('PTTL', meta)
  if left > 0 then
    redis.call('PEXPIRE', stream, left)
  end
end
recent = string.sub(append_id .. ' ' .. recent, 1, REMEMBERED * (#append_id + 1))
local fields = { 'seq', string.format('%.0f', seq), 'fence', string.format('%.0f', fence), 'recent', recent }
for field in pairs(once) do
  fields[#fields + 1] = field
  fields[#fields + 1] = '1'
end
redis.call('HSET', meta, unpack(fields))
return { 'OK', last }
