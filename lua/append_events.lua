-- append_events: append events to a stream and publish each, in one round trip. The last one may end the stream.
--
-- A producer numbers its events from 1, and the script leaves out those that it has appended before, so that a call repeated after a
-- lost reply changes nothing. Where Redis lacks an event that was confirmed to the producer, as an older master does after a failover,
-- ids that readers have may be assigned to other events. Such a stream continues with a new generation of ids, by which readers notice
-- the loss. A producer that is no longer remembered is treated the same: a `gap` too many costs less than an event too few.
--
-- KEYS[1]  meta hash: state, gen, seq, fence as in open_stream; once:{type}; producer:{id}: "{number} {id}" of its last event;
--          producers: the last 64, one per line, oldest first; each once:{type} takes the place of one
-- KEYS[2]  stream
-- ARGV[1]  Pub/Sub channel
-- ARGV[2]  prefix of the keys
-- ARGV[3]  producer
-- ARGV[4]  number of the first event
-- ARGV[5]  number of the last event that was confirmed to the producer, 0 if none was
-- ARGV[6]  fence of the caller: one lower than the stream's is rejected, a higher one raises it. An end is not fenced, since the
--          database has decided it
-- ARGV[7]  ms for which both keys are kept from now; 0 leaves the expiry of the meta hash, which the stream follows
-- ARGV[8]  approximate length to which the stream is trimmed; 0 leaves it whole
-- ARGV[9]  1: a stream that is absent or lacks events begins a new generation here, and not in open_stream
-- ARGV[10] 1: the last event ends the stream
-- ARGV[11…] triples: event type if it may be in the stream only once, else ''; the event as JSON; the event of the operator stream
--          about it, or ''
--
-- Each event becomes entry {gen}-{seq} with field e = JSON, and the message "{id} {json}" on the channel.
--
-- Returns {code, last id}
--   OK      appended, now or before
--   ENDED   the stream has its terminal event; nothing was appended
--   FENCED  a newer attempt writes this stream; nothing was appended
--   ABSENT  never opened, expired, or lost with Redis's data; nothing was appended
--   LOST    Redis has lost events that it had confirmed to the producer; nothing was appended

-- include operator

local meta, stream, channel, prefix, producer = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local number, known, fence, ttl, trim = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local begins, ends = ARGV[9] == '1', ARGV[10] == '1'
if not (number and known and fence and ttl and trim) then return redis.error_reply('ERR append_events: not a number') end
local FIRST, FIELDS = 11, 5 + 64

local field = 'producer:' .. producer
local found = redis.call('HMGET', meta, 'state', 'gen', 'seq', 'fence', field)
local state, gen, seq, held = found[1], found[2], found[3], tonumber(found[4] or '0')
local number_stored, of_gen, at = string.match(found[5] or '0 0-0', '^(%d+) (%d+)-(%d+)$')
local stored = tonumber(number_stored)
if not (state or begins) then return { 'ABSENT', '' } end
local last = state and gen .. '-' .. seq
if state and state ~= 'open' then return { 'ENDED', last } end
if held > fence and not ends then return { 'FENCED', last } end
local lost = known > stored or of_gen == gen and tonumber(at) > tonumber(seq)
if lost then stored = math.min(stored, known) end
local first = FIRST + 3 * math.max(0, stored + 1 - number)
if state and not lost and first > #ARGV then return { 'OK', last } end
if lost and not begins then return { 'LOST', last } end

local events, once = {}, {}
for i = first, #ARGV, 3 do
  local kind = 'once:' .. ARGV[i]
  if ARGV[i] == '' then
    events[#events + 1] = i + 1
  elseif not once[kind] and redis.call('HEXISTS', meta, kind) == 0 then
    once[kind] = true
    events[#events + 1] = i + 1
  end
end
local fresh = ttl == 0 and #events > 0 and redis.call('EXISTS', stream) == 0

if not state or lost then gen, seq = new_generation(stream, gen), '0' end
for _, i in ipairs(events) do
  seq = string.format('%.0f', seq + 1)
  append_event(stream, channel, gen .. '-' .. seq, ARGV[i], trim)
  if ARGV[i + 1] ~= '' then operator_event(prefix, ARGV[i + 1]) end
end
last = gen .. '-' .. seq
local fields = { 'seq', seq, 'fence', string.format('%.0f', math.max(fence, held)) }
local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
if not state or lost then set('gen', gen) end
if not state or ends then set('state', ends and 'ended' or 'open') end
for kind in pairs(once) do set(kind, '1') end
if not ends then set(field, string.format('%.0f ', number + (#ARGV - FIRST + 1) / 3 - 1) .. last) end
if not (found[5] or ends) then
  local producers = (redis.call('HGET', meta, 'producers') or '') .. producer .. '\n'
  if redis.call('HLEN', meta) >= FIELDS then
    local oldest = string.match(producers, '^[^\n]+')
    redis.call('HDEL', meta, 'producer:' .. oldest)
    producers = string.sub(producers, #oldest + 2)
  end
  set('producers', producers)
end
redis.call('HSET', meta, unpack(fields))
local left = fresh and redis.call('PTTL', meta) or ttl
if left > 0 then
  redis.call('PEXPIRE', stream, left)
  if not fresh then redis.call('PEXPIRE', meta, left) end
end
return { 'OK', last }
