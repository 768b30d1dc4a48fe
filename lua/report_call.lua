-- report_call: count the outcome of a call of a model, and pause the model for all callers where its provider asks for it or
-- calls of several tasks fail in a row: one task whose calls always fail must not pause the model for the others. A model that
-- was paused by failures gets one slot until a call has begun to answer: that call is the probe.
--
-- KEYS[1] limits: until and cause of the pause, probe
-- KEYS[2] breaker: failures, the consecutive ones; task, that of the last; several, whether they are of different tasks; opened,
--         the consecutive pauses
-- ARGV[1] outcome: ok, failed, limited (the provider works and rejected the call), or begun (its answer begins to arrive)
-- ARGV[2] time in ms for which the provider wants no calls, 0 for none
-- ARGV[3] reason of a pause
-- ARGV[4] number of consecutive failures that pause the model
-- ARGV[5] length of the first such pause in ms; it doubles with each probe that fails, but not with those of the same task
-- ARGV[6] maximum length of a pause in ms
-- ARGV[7] time in ms after which failures are forgotten
-- ARGV[8] prefix of the keys
-- ARGV[9] model
-- ARGV[10] task of the call
--
-- Returns {code, left}; left: ms until the end of the pause, 0 without one:
--   COUNTED  nothing changed for other calls
--   PAUSED   no slot is granted for a time that the provider requested
--   OPENED   no slot is granted after repeated failures, then one
--   CLOSED   the probe is answered: all slots are granted again

-- include clock
-- include operator

local limits, breaker = KEYS[1], KEYS[2]
local outcome, requested, reason, task = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[10]
local threshold, first, longest, memory = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if not (requested and threshold and first and longest and memory) then return redis.error_reply('ERR report_call: not a number') end
if not ({ ok = true, failed = true, limited = true, begun = true })[outcome] then return redis.error_reply('ERR report_call: unknown outcome') end

local now = clock()
local held = redis.call('HMGET', limits, 'until', 'probe')
local ends, probing = tonumber(held[1] or '0'), held[2] == '1'
local code, pause = 'COUNTED', math.min(requested, longest)
if pause > 0 then code = 'PAUSED' end

if outcome == 'failed' then
  local seen = redis.call('HMGET', breaker, 'failures', 'opened', 'task', 'several')
  local failures, opened = tonumber(seen[1] or '0') + 1, tonumber(seen[2] or '0')
  local same = seen[3] == task
  local several = seen[4] == '1' or seen[3] and not same
  -- Failures of calls that began before the pause change nothing.
  if probing and ends <= now or not probing and several and failures >= threshold then
    local length = first
    if opened == 0 or not same then
      opened = opened + 1
      length = math.min(first * 2 ^ math.min(opened - 1, 20), longest)
    end
    code, pause = 'OPENED', math.max(pause, length)
    redis.call('HSET', limits, 'probe', '1')
  end
  redis.call('HSET', breaker, 'failures', whole(failures), 'opened', whole(opened), 'task', task, 'several', several and '1' or '0')
  redis.call('PEXPIRE', breaker, whole(memory))
elseif outcome == 'begun' then
  -- The others need not wait for the end of the answer. If it fails after all, the next failure pauses the model again.
  if probing and ends <= now then
    redis.call('HDEL', limits, 'probe')
    code = 'CLOSED'
  end
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
