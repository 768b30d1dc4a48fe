-- append_operator_events: append changes that no other script makes to the operator stream.
--
-- KEYS[1]  guard, to name the cell
-- ARGV[1]  prefix of the keys
-- ARGV[2…] events as JSON
--
-- Returns {code}
--   OK  appended

-- include operator

if not KEYS[1] then return redis.error_reply('ERR append_operator_events: no key') end
for i = 2, #ARGV do operator_event(ARGV[1], ARGV[i]) end
return { 'OK' }
