-- define_pool: write or delete a pool's definition, and index it. The caller moves the nodes afterwards.
--
-- KEYS[1] definitions of pools: pool -> JSON
-- KEYS[2] anchors: capability -> pools that may select nodes with it, one per line
-- ARGV[1] pool
-- ARGV[2] definition as JSON, '' to delete it
-- ARGV[3] 1 to keep an existing definition
-- ARGV[4] channel of updated configuration
-- ARGV[5] prefix of the keys
-- ARGV[6] event of the operator stream
--
-- Returns {code}
--   OK      written or deleted
--   EXISTS  there is the same definition, or one to be kept; nothing changed

-- include operator

local pools, anchors, id, definition = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local existing = redis.call('HGET', pools, id)
if existing and (ARGV[3] == '1' or existing == definition) then return { 'EXISTS' } end

-- A pool is looked up from one of its capabilities, or for every node when it asks for none.
local function anchor_of(json)
  local c = cjson.decode(json).capabilities
  return type(c) == 'table' and c[1] or ''
end
if existing then
  local anchor, left = anchor_of(existing), {}
  for line in string.gmatch(redis.call('HGET', anchors, anchor) or '', '[^\n]+') do
    if line ~= id then left[#left + 1] = line end
  end
  if #left > 0 then
    redis.call('HSET', anchors, anchor, table.concat(left, '\n'))
  else
    redis.call('HDEL', anchors, anchor)
  end
  redis.call('HDEL', pools, id)
end
if definition ~= '' then
  local anchor = anchor_of(definition)
  local list = redis.call('HGET', anchors, anchor)
  redis.call('HSET', anchors, anchor, list and list .. '\n' .. id or id)
  redis.call('HSET', pools, id, definition)
end
redis.call('PUBLISH', ARGV[4], 'pools')
operator_event(ARGV[5], ARGV[6])
return { 'OK' }
