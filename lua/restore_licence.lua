-- restore_licence: give a conference the licence that Redis may have lost, whatever their number, unless the conference has ended
-- meanwhile. Idempotent.
--
-- KEYS[1] the last ended conference of this number: epoch:conference id
-- KEYS[2] numbers of the conferences that have a licence
-- ARGV[1] the conference's number
-- ARGV[2] conference id
--
-- Returns {code}
--   OK     it has a licence
--   STALE  it has ended; nothing changed

if string.match(redis.call('GET', KEYS[1]) or '', '^%d+:(.*)$') == ARGV[2] then return { 'STALE' } end
redis.call('SADD', KEYS[2], ARGV[1])
return { 'OK' }
