-- new_generation returns the generation of ids with which a stream begins or continues: that of Redis's clock, and later than the
-- newest entry and than a generation that is known.
local function new_generation(stream, known)
  local time = redis.call('TIME')
  local gen = math.max(tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), tonumber(known or '-1') + 1)
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  if newest[1] then gen = math.max(gen, tonumber(string.match(newest[1][1], '^(%d+)-')) + 1) end
  return string.format('%.0f', gen)
end

-- append_event appends one event, as JSON, and publishes it. The stream is trimmed to about the given length if that is not 0.
local function append_event(stream, channel, id, event, trim)
  if trim > 0 then
    redis.call('XADD', stream, 'MAXLEN', '~', trim, id, 'e', event)
  else
    redis.call('XADD', stream, id, 'e', event)
  end
  redis.call('PUBLISH', channel, id .. ' ' .. event)
end

-- operator_event appends an event, as JSON, to the operator stream of the cell and publishes it. The script that changes a state also
-- reports the change, so that no reader sees one without the other. The keys are those of a stream without an end, as in
-- append_events. The stream keeps about 10,000 events, for a day after the last one.
local function operator_event(prefix, event)
  local channel = prefix .. 'cs:events::operator:events'
  local meta, stream = channel .. ':meta', channel .. ':stream'
  local found = redis.call('HMGET', meta, 'gen', 'seq')
  local gen, seq = found[1], string.format('%.0f', tonumber(found[2] or '0') + 1)
  if not gen then
    gen = new_generation(stream)
    redis.call('HSET', meta, 'state', 'open', 'gen', gen, 'fence', '0')
  end
  append_event(stream, channel, gen .. '-' .. seq, event, 10000)
  redis.call('HSET', meta, 'seq', seq)
  redis.call('EXPIRE', meta, 86400)
  redis.call('EXPIRE', stream, 86400)
end
