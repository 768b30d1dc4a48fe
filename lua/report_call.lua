-- report_call: count the outcome of a call of a model, and pause its upstream for all callers where the provider asks for it, where it
-- failed while another one works, or where calls of several tasks fail in a row: one task whose calls always fail must not pause the last
-- upstream for the others. An upstream that was paused by failures gets one slot until a call has begun to answer: that call is the probe.
-- After each pause its slots double from one. An automatic cap is lowered where the provider has no capacity for a call, and rises by
-- one after as many successes as it permits calls (additive increase, multiplicative decrease, as in RFC 5681), if it is in use: RFC 7661. To
-- rise to where the provider refused a call it takes PATIENCE times as many: small limits would be exceeded by every few calls otherwise.
--
-- KEYS[1] limits of the model, see include room
-- KEYS[2] breaker: failures, the consecutive ones; task, that of the last; several, whether they are of different tasks; opened,
--         the consecutive pauses
-- KEYS[3] leases on the slots of the upstream
-- ARGV[1] outcome: ok, failed, limited (the provider works and has no capacity for the call), broken (the upstream cannot serve until
--         an operator acts), or begun (its answer begins to arrive)
-- ARGV[2] time in ms for which the provider wants no calls, 0 for none
-- ARGV[3] reason of a pause
-- ARGV[4] number of consecutive failures that pause the upstream
-- ARGV[5] length of the first such pause in ms; it doubles with each probe that fails, but not with those of the same task
-- ARGV[6] maximum length of a pause in ms that the provider requests, and length of one after a fault that lasts
-- ARGV[7] time in ms after which failures are forgotten
-- ARGV[8] prefix of the keys
-- ARGV[9] model
-- ARGV[10] upstream
-- ARGV[11] task of the call
-- ARGV[12] ms since the call began
-- ARGV[13] maximum length of a pause after failures in ms
--
-- Returns {code, left}; left: ms until the end of the pause, 0 without one:
--   COUNTED  nothing changed for other calls
--   PAUSED   no slot is granted for a time that the provider requested
--   OPENED   no slot is granted after failures, then one
--   CLOSED   the probe is answered: all slots are granted again

-- include clock
-- include operator
-- include learned

local limits, breaker = KEYS[1], KEYS[2]
local outcome, requested, reason, name, task = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[10], ARGV[11]
local threshold, first, longest, memory = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local took, doubled = tonumber(ARGV[12]), tonumber(ARGV[13])
if not (KEYS[3] and requested and threshold and first and longest and memory and took and doubled) then
  return redis.error_reply('ERR report_call: not a number')
end
if not ({ ok = true, failed = true, limited = true, broken = true, begun = true })[outcome] then
  return redis.error_reply('ERR report_call: unknown outcome')
end

local now = clock()
local function field(f) return f .. ':' .. name end
local held = redis.call('HMGET', limits, field('until'), field('probe'), 'base', field('cap'), 'cap')
local ends, probing = tonumber(held[1] or '0'), held[2] == '1'
local code, pause = 'COUNTED', math.min(requested, longest)
if pause > 0 then code = 'PAUSED' end

local ok, base = pcall(cjson.decode, held[3] or '')
local upstreams, mine = ok and type(base) == 'table' and base.upstreams or {}, nil
for _, u in ipairs(upstreams) do
  if u.name == name then mine = u end
end

-- another_works reports whether another upstream of the model takes calls.
local function another_works()
  for _, u in ipairs(upstreams) do
    if u.name ~= name then
      local v = redis.call('HMGET', limits, 'until:' .. u.name, 'probe:' .. u.name, 'paused:' .. u.name, 'cap:' .. u.name)
      if tonumber(v[1] or '0') <= now and v[2] ~= '1' and v[3] ~= '1' and tonumber(v[4] or u.cap) > 0 then return true end
    end
  end
  return false
end

-- lower lowers an automatic cap, at most once for the calls that began before, and reports whether it is automatic and could be lowered. raise
-- raises it.
local PATIENCE = 8
local automatic = mine and mine.auto == true and not held[4] and not (held[5] and #upstreams == 1)
local function learned()
  local v = redis.call('HMGET', limits, field('learned'), field('lowered'), field('good'), field('refused'))
  return learned_cap(mine, v[1]), tonumber(v[2] or '0'), tonumber(v[3] or '0'), tonumber(v[4] or nil)
end
local function lower()
  local cap, lowered = learned()
  if now - took < lowered then return true end
  if cap == mine.min then return false end
  local lower = math.max(mine.min, math.floor(cap * 0.7))
  redis.call('HSET', limits, field('learned'), whole(lower), field('lowered'), whole(now), field('good'), '0', field('refused'), whole(cap))
  return true
end
local function raise()
  local cap, _, good, refused = learned()
  if redis.call('ZCARD', KEYS[3]) * 2 < cap or cap == mine.cap then return end
  good = good + 1
  local again = refused and cap + 1 >= refused
  if good >= cap * (again and PATIENCE or 1) then
    cap, good = cap + 1, 0
    if again then redis.call('HDEL', limits, field('refused')) end
  end
  redis.call('HSET', limits, field('learned'), whole(cap), field('good'), whole(good))
end

-- A call for which there was no capacity shows nothing worse where the cap can be lowered, or the provider states how long to wait.
if outcome == 'limited' and not (automatic and lower()) and pause == 0 then outcome = 'failed' end
if outcome == 'ok' and automatic then raise() end

if outcome == 'failed' or outcome == 'broken' then
  local seen = redis.call('HMGET', breaker, 'failures', 'opened', 'task', 'several')
  local failures, opened = tonumber(seen[1] or '0') + 1, tonumber(seen[2] or '0')
  local same = seen[3] == task
  local several = seen[4] == '1' or seen[3] and not same
  -- A call that fails for good shows its cause to the user, without a pause where no other upstream works.
  local opens
  if probing then -- failures of calls that began before the pause change nothing
    opens = ends <= now and (outcome == 'failed' or another_works())
  else
    opens = another_works() or outcome == 'failed' and several and failures >= threshold
  end
  if opens then
    local length = first
    if opened == 0 or not same then
      opened = opened + 1
      length = math.min(first * 2 ^ math.min(opened - 1, 20), doubled)
    end
    if outcome == 'broken' then length = longest end
    code, pause = 'OPENED', math.max(pause, length)
    redis.call('HSET', limits, field('probe'), '1', field('broken'), outcome == 'broken' and '1' or '0')
  end
  redis.call('HSET', breaker, 'failures', whole(failures), 'opened', whole(opened), 'task', task, 'several', several and '1' or '0')
  redis.call('PEXPIRE', breaker, whole(memory))
elseif outcome == 'begun' then
  -- The others need not wait for the end of the answer. If it fails after all, the next failure pauses the upstream again.
  if probing and ends <= now then
    redis.call('HDEL', limits, field('probe'), field('broken'))
    code = 'CLOSED'
  end
elseif not probing or ends <= now then
  redis.call('DEL', breaker)
  if probing then
    redis.call('HDEL', limits, field('probe'), field('broken'))
    if code == 'COUNTED' then code = 'CLOSED' end
  end
end

if code == 'PAUSED' then redis.call('HDEL', limits, field('broken')) end
if code == 'CLOSED' then redis.call('HSET', limits, field('ramp'), whole(now)) end
if pause > 0 and now + pause > ends then
  ends = now + pause
  redis.call('HSET', limits, field('until'), whole(ends), field('cause'), reason, field('ramp'), whole(ends))
end
if code ~= 'COUNTED' then
  operator_event(ARGV[8], '{"type":"model","ts":' .. whole(now) .. ',"model":' .. cjson.encode(ARGV[9])
    .. ',"upstream":' .. cjson.encode(name) .. (code == 'CLOSED'
    and ',"status":"running"}' or ',"status":"paused","reason":' .. cjson.encode(reason) .. '}'))
end
return { code, math.max(0, ends - now) }
