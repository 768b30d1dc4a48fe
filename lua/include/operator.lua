-- operator_event appends an event, as JSON, to the operator stream of the cell and publishes it. The script that changes a state also
-- reports the change, so that no reader sees one without the other. The keys are those of a stream without an end, as in
-- append_turn_events. The stream keeps about 10,000 events, for a day after the last one.
local function operator_event(prefix, event)
  local channel = prefix .. 'cs:events::operator:events'
  local meta, stream = channel .. ':meta', channel .. ':stream'
  local found = redis.call('HMGET', meta, 'gen', 'seq')
  local gen, seq = found[1], string.format('%.0f', tonumber(found[2] or '0') + 1)
  if not gen then
    local time = redis.call('TIME')
    local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
    local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
    if newest[1] then now = math.max(now, tonumber(string.match(newest[1][1], '^(%d+)-')) + 1) end
    gen = string.format('%.0f', now)
    redis.call('HSET', meta, 'state', 'open', 'gen', gen, 'fence', '0')
  end
  redis.call('XADD', stream, 'MAXLEN', '~', 10000, gen .. '-' .. seq, 'e', event)
  redis.call('HSET', meta, 'seq', seq)
  redis.call('PUBLISH', channel, gen .. '-' .. seq .. ' ' .. event)
  redis.call('EXPIRE', meta, 86400)
  redis.call('EXPIRE', stream, 86400)
end
