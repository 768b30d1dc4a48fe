-- decide_session_pool: which pool a session's jobs go to (L5). Kept while the language pair is the same and the pool
-- is still eligible; else the tenant's override, the stable hash, or the first.
--
-- KEYS[1] session
-- ARGV[1] source language
-- ARGV[2] target language
-- ARGV[3] routing key
-- ARGV[4] hash of the routing key, -1 for the first eligible pool
-- ARGV[5] pool that the tenant is bound to, ''; counts only when it is eligible
-- ARGV[6] channel of updated sessions
-- ARGV[7] user whose session it is
-- ARGV[8] tenant, ''
-- ARGV[9...] eligible pools
--
-- Returns {code, pool}
--   EXISTS   kept
--   RESET    the language pair has changed: decided anew
--   NEW      decided
--   NO_POOL  no pool is eligible; nothing changed

local session, src, tgt, routing, hash, bound = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
if not hash then return redis.error_reply('ERR decide_session_pool: not a number') end
local eligible, override = {}, false
for i = 9, #ARGV do
  eligible[i - 8] = ARGV[i]
  override = override or ARGV[i] == bound
end
if #eligible == 0 then return { 'NO_POOL', '' } end
local was = redis.call('HMGET', session, 'src_lang', 'tgt_lang', 'preferred_pool')
local changed = was[1] and (was[1] ~= src or was[2] ~= tgt)
if was[3] and not changed then
  for _, pool in ipairs(eligible) do
    if pool == was[3] then
      redis.call('EXPIRE', session, 3600)
      return { 'EXISTS', pool }
    end
  end
end

local pool = override and bound or eligible[hash < 0 and 1 or hash % #eligible + 1]
local time = redis.call('TIME')
redis.call('HSET', session, 'user_id', ARGV[7], 'tenant_id', ARGV[8], 'src_lang', src, 'tgt_lang', tgt,
  'preferred_pool', pool, 'routing_key', routing,
  'updated_at_ms', string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)))
redis.call('EXPIRE', session, 3600)
redis.call('PUBLISH', ARGV[6], routing)
return { changed and 'RESET' or 'NEW', pool }
