-- mark_listening: note that an API process accepts heartbeats. Every API process calls it about once a second. While none
-- does, missed heartbeats prove nothing about the nodes.
--
-- KEYS[1] state of the sweep
--
-- Returns {code}
--   OK  noted

-- include fleet
-- include node

redis.call('HSET', KEYS[1], 'listened_ms', whole(clock()))
return { 'OK' }
