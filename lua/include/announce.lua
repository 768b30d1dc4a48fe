-- Notices of changes of nodes. Needs include fleet.

-- include operator

-- announce publishes a change of a node that is more than a heartbeat. With a status, operators are notified too.
local function announce(stem, id, status, reason)
  redis.call('PUBLISH', stem .. 'node:updated', id)
  redis.call('PUBLISH', stem .. 'node:changed', id)
  if not status then return end
  local event = '{"type":"node","ts":' .. whole(clock()) .. ',"nodeId":' .. cjson.encode(id) .. ',"status":"' .. status .. '"'
  if reason then event = event .. ',"reason":' .. cjson.encode(reason) end
  operator_event(string.sub(stem, 1, -11), event .. '}') -- the prefix of the keys, without the last name of the stem
end
