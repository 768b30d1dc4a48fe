-- mark_new: say that this Redis never held anything, so that nothing has to be waited for (L12).
-- For whoever just made the Redis with empty data: a guard that is there is kept.
--
-- KEYS[1] guard
--
-- Returns {code}:
--   OK      the guard is written, grants begin at once
--   EXISTS  there was a guard already: nothing changed

-- include queue

if redis.call('EXISTS', KEYS[1]) == 1 then return { 'EXISTS' } end
redis.call('HSET', KEYS[1], 'run', server(), 'grace', '0')
return { 'OK' }
