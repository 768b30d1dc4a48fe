-- decide_session_pool: decide which pool a session's jobs use. The pool is kept while the language pair is the same and
-- the pool is eligible; else it is the tenant's, the one of the stable hash, or the first.
--
-- KEYS[1] session
-- KEYS[2] pools to which tenants are bound
-- KEYS[3] definitions of pools
-- KEYS[4] guard
-- ARGV[1] source language
-- ARGV[2] target language
-- ARGV[3] routing key
-- ARGV[4] hash of the routing key, -1 for the first eligible pool
-- ARGV[5] capabilities that serve the language pair, one per line: the tenant's pool is used when it is eligible, or its
--         definition asks for one of these and allows the tenant
-- ARGV[6] channel of updated sessions
-- ARGV[7] user who owns the session
-- ARGV[8] tenant or ''
-- ARGV[9] pool to which the tenant was bound when the caller last read it, or '': used while Redis may have lost bindings
-- ARGV[10] version of the session's row
-- ARGV[11] key of the session's row
-- ARGV[12...] eligible pools; the tenant may use all of them
--
-- Returns {code, pool}
--   EXISTS   kept
--   RESET    the language pair has changed; decided
--   NEW      decided
--   NO_POOL  no pool is eligible; nothing changed
--   STALE    a later version of the row was decided; nothing changed

-- include grace_left

local session, src, tgt, routing, hash, version = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[10])
if not (hash and version) then return redis.error_reply('ERR decide_session_pool: not a number') end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local bound, override = ARGV[8] ~= '' and redis.call('HGET', KEYS[2], ARGV[8]), false
if not bound and ARGV[9] ~= '' then
  bound = grace_left(KEYS[4], now, 0) ~= 0 and ARGV[9]
end
local eligible = {}
for i = 12, #ARGV do
  eligible[i - 11] = ARGV[i]
  override = override or ARGV[i] == bound
end
if #eligible == 0 then return { 'NO_POOL', '' } end
if bound and not override then -- the caller may not have read the definition yet
  local definition = redis.call('HGET', KEYS[3], bound)
  local fields = definition and cjson.decode(definition) or {}
  local function has(list, value)
    for _, v in ipairs(type(list) == 'table' and list or {}) do
      if v == value then return true end
    end
    return false
  end
  local allowed = type(fields.tenants) ~= 'table' or has(fields.tenants, ARGV[8])
  local serves = false
  for capability in string.gmatch(ARGV[5], '[^\n]+') do
    serves = serves or has(fields.capabilities, capability)
  end
  override = allowed and serves
end
local current = redis.call('HMGET', session, 'src_lang', 'tgt_lang', 'preferred_pool', 'version')
if tonumber(current[4] or '0') > version then return { 'STALE', '' } end
local changed = current[1] and (current[1] ~= src or current[2] ~= tgt)
if current[3] and not changed then
  local kept = override and bound == current[3]
  for _, pool in ipairs(eligible) do
    kept = kept or pool == current[3]
  end
  if kept then
    redis.call('HSET', session, 'version', ARGV[10])
    redis.call('EXPIRE', session, 3600)
    return { 'EXISTS', current[3] }
  end
end

local pool = override and bound or eligible[hash < 0 and 1 or hash % #eligible + 1]
redis.call('HSET', session, 'user_id', ARGV[7], 'tenant_id', ARGV[8], 'src_lang', src, 'tgt_lang', tgt,
  'preferred_pool', pool, 'routing_key', routing, 'version', ARGV[10], 'key', ARGV[11],
  'updated_at_ms', string.format('%.0f', now))
redis.call('EXPIRE', session, 3600)
redis.call('PUBLISH', ARGV[6], routing)
return { changed and 'RESET' or 'NEW', pool }
