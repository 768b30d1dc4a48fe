-- Finds the assignment of a lease, which may have been reserved for work that waits. Set before: stem, lease, now. It sets:
--   taken  its row, see write_lease; false where there is none
--   held   whether the slot is held; taken_slots: the key of its node's slots
local taken, held, taken_slots = redis.call('HGET', stem .. 'leases', lease), false, nil
if taken then
  local node, generation = string.match(taken, '\n([^\n]*)\n([^\n]*)\n')
  taken_slots = stem .. 'node:slots:' .. node
  local expiry = redis.call('HGET', stem .. 'node:runtime:' .. node, 'generation') == generation and redis.call('ZSCORE', taken_slots, lease)
  held = expiry and tonumber(expiry) > now
end
