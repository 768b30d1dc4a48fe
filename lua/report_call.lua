-- report_call: count the outcome of a call of a model, and pause the model for all callers where its provider asks for it or
-- calls fail repeatedly. A model that was paused by failures gets one slot until a call succeeds: that call is the probe.
--
-- KEYS[1] limits: until and cause of the pause, probe
-- KEYS[2] breaker: failures, the consecutive ones; opened, the consecutive pauses
-- ARGV[1] outcome: ok, failed, or limited (the provider works and rejected the call)
-- ARGV[2] time in ms for which the provider wants no calls, 0 for none
-- ARGV[3] reason of a pause
-- ARGV[4] number of consecutive failures that pause the model
-- ARGV[5] length of the first such pause in ms; it doubles with each probe that fails
-- ARGV[6] maximum length of a pause in ms
-- ARGV[7] time in ms after which failures are forgotten
-- ARGV[8] prefix of the keys
-- ARGV[9] model
--
-- Returns {code, left}; left: ms until the end of the pause, 0 without one:
--   COUNTED  nothing changed for other calls
--   PAUSED   no slot is granted for a time that the provider requested
--   OPENED   no slot is granted after repeated failures, then one
--   CLOSED   the probe succeeded: all slots are granted again

-- include clock
-- include operator

local limits, breaker = KEYS[1], KEYS[2]
local outcome, requested, reason = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local threshold, first, longest, memory = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if not (requested and threshold and first and longest and memory) then return redis.error_reply('ERR report_call: not a number') end
if outcome ~= 'ok' and outcome ~= 'failed' and outcome ~= 'limited' then return redis.error_reply('ERR report_call: unknown outcome') end

local now = clock()
local held = redis.call('HMGET', limits, 'until', 'probe')
local ends, probing = tonumber(held[1] or '0'), held[2] == '1'
local code, pause = 'COUNTED', math.min(requested, longest)
if pause > 0 then code = 'PAUSED' end

if outcome == 'failed' then
  local seen = redis.call('HMGET', breaker, 'failures', 'opened')
  local failures, opened = tonumber(seen[1] or '0') + 1, tonumber(seen[2] or '0')
  -- Failures of calls that began before the pause change nothing.
  if probing and ends <= now or not probing and failures >= threshold then
    opened = opened + 1
    code, pause = 'OPENED', math.max(pause, math.min(first * 2 ^ math.min(opened - 1, 20), longest))
    redis.call('HSET', limits, 'probe', '1')
  end
  redis.call('HSET', breaker, 'failures', whole(failures), 'opened', whole(opened))
  redis.call('PEXPIRE', breaker, whole(memory))
elseif not probing or ends <= now then
  redis.call('DEL', breaker)
  if probing then
    redis.call('HDEL', limits, 'probe')
    if code == 'COUNTED' then code = 'CLOSED' end
  end
end

if pause > 0 and now + pause > ends then
  ends = now + pause
  redis.call('HSET', limits, 'until', whole(ends), 'cause', reason)
end
if code ~= 'COUNTED' then
  operator_event(ARGV[8], '{"type":"model","ts":' .. whole(now) .. ',"model":' .. cjson.encode(ARGV[9]) .. (code == 'CLOSED'
    and ',"status":"running"}' or ',"status":"paused","reason":' .. cjson.encode(reason) .. '}'))
end
return { code, math.max(0, ends - now) }
