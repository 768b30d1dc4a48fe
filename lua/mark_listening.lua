-- mark_listening: every API process says about once a second that it takes heartbeats. While none does, silence is nobody's
-- fault (L11).
--
-- KEYS[1] the sweep's own state
--
-- Returns {code}
--   OK  noted

-- include fleet

redis.call('HSET', KEYS[1], 'heard_ms', whole(clock()))
return { 'OK' }
