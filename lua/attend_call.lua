-- attend_call: note that a client waits for a call, or that it does no longer. A call for which none waits is abandoned after a time. Idempotent.
--
-- KEYS[1] calls for which clients wait, scored by when they are abandoned
-- KEYS[2] client of the call
-- KEYS[3] processes that run, scored by when they are presumed dead: with a process its clients are lost
-- ARGV[1] call
-- ARGV[2] client: its process and its number, separated by /
-- ARGV[3] event:
--   joins    it waits, and becomes the client of the call
--   follows  likewise, in place of one that was lost, which is not connected and has made fewer attempts
--   waits    it still waits
--   leaves   its connection was lost
--   ends     the call has ended
-- ARGV[4] number of attempts that the client has made before this one
-- ARGV[5] time in ms after which a call without a client is abandoned
-- ARGV[6] time in ms for which the client is remembered
--
-- Returns {code}:
--   ATTENDED   noted
--   CONNECTED  follows: the client of the call is connected
--   TAKEN      follows: another client has followed it

-- include clock

local call, client, event, attempts, grace, keep = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local events = { joins = true, follows = true, waits = true, leaves = true, ends = true }
if not (call ~= '' and client ~= '' and events[event] and attempts and grace and keep) then
  return redis.error_reply('ERR attend_call: unreadable argument')
end

local now = clock()
local until_ms = tonumber(redis.call('ZSCORE', KEYS[1], call) or 0)
local held = redis.call('HMGET', KEYS[2], 'client', 'attempts')
local own = held[1] == client
if event == 'follows' and held[1] and not own then
  if tonumber(held[2] or 0) >= attempts then return { 'TAKEN' } end
  local process = string.match(held[1], '^([^/]*)/')
  local runs = tonumber(redis.call('ZSCORE', KEYS[3], process or '') or 0) > now
  if runs and until_ms > now and redis.call('HEXISTS', KEYS[2], 'left') == 0 then return { 'CONNECTED' } end
end
if event == 'joins' or event == 'follows' then
  redis.call('HSET', KEYS[2], 'client', client, 'attempts', whole(attempts))
  redis.call('HDEL', KEYS[2], 'left')
elseif own and (event == 'leaves' or event == 'ends') then
  redis.call('HSET', KEYS[2], 'left', '1')
end
if event == 'ends' then
  redis.call('ZREM', KEYS[1], call)
elseif event ~= 'leaves' or own then
  if event ~= 'leaves' then until_ms = math.max(until_ms, now + grace) else until_ms = now + grace end
  redis.call('ZADD', KEYS[1], whole(until_ms), call)
end
redis.call('PEXPIRE', KEYS[2], whole(keep))
return { 'ATTENDED' }
