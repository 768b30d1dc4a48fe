-- open_stream: create the metadata of a task's stream from the task's row, or raise the fence of an open one. Nothing can
-- be appended to a stream that was not opened here. Each opening has a generation: the Redis time in ms, higher than
-- any generation in the keys. Entries are numbered {gen}-1, {gen}-2, … without gaps.
--
-- KEYS[1]  meta hash: state, gen, seq, fence, and what append_events adds
-- KEYS[2]  stream
-- ARGV[1]  fence of the caller
-- ARGV[2]  time to live in ms, so that the keys of a task that never ends expire
-- ARGV[3]  id of the last entry that the caller knows was stored, or ''. When the open stream ends before it, Redis has
--          lost data: a new generation starts, so that no id is used twice
-- ARGV[4]  event of the operator stream about the opening, or ''
-- ARGV[5]  prefix of the keys
--
-- Returns {code, last id}
--   OK      opened, or a new generation started
--   EXISTS  open already; its fence is the higher of both
--   ENDED   the stream has its terminal event and stays closed

-- include operator

local meta, stream = KEYS[1], KEYS[2]
local fence, ttl, known = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local found = redis.call('HMGET', meta, 'state', 'gen', 'seq', 'fence')
local state, gen, seq, held = found[1], found[2], found[3], tonumber(found[4] or '0')

if state == 'ended' then
  return { 'ENDED', gen .. '-' .. seq }
end

local rewound = false
if state and known ~= '' then
  local known_gen, known_seq = string.match(known, '^(%d+)-(%d+)$')
  rewound = known_gen == gen and tonumber(known_seq) > tonumber(seq)
end

local code = 'EXISTS'
if not state or rewound then
  code = 'OK'
  gen, seq = new_generation(stream, gen), '0'
end
redis.call('HSET', meta, 'state', 'open', 'gen', gen, 'seq', seq, 'fence', string.format('%.0f', math.max(fence, held)))
for _, key in ipairs({ meta, stream }) do
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, ttl)
  end
end
if code == 'OK' and ARGV[4] ~= '' then operator_event(ARGV[5], ARGV[4]) end
return { code, gen .. '-' .. seq }
