-- mark_new: declare that this Redis is new and empty, so that no grace is needed. An existing guard is kept.
--
-- KEYS[1] guard
--
-- Returns {code}:
--   OK      the guard is written; slots are granted immediately
--   EXISTS  there was a guard; nothing changed

-- include clock
-- include format
-- include server

if redis.call('EXISTS', KEYS[1]) == 1 then return { 'EXISTS' } end
redis.call('HSET', KEYS[1], 'server', server(redis.pcall('INFO', 'replication')), 'grace', '0', 'epoch', '1',
  'format', FORMAT)
return { 'OK' }
