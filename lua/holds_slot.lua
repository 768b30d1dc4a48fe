-- holds_slot: report whether a lease holds a slot of a model.
--
-- KEYS[1] leases on the slots of the model
-- ARGV[1] lease id
--
-- Returns {code}: HELD, or LOST

-- include clock

local expiry = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
return { expiry > clock() and 'HELD' or 'LOST' }
