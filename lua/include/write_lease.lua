-- Writes the assignment of a lease that does not belong to a job. The last line is padding: a hash with a value of more than 64 bytes is
-- a hash table; a smaller one is a list, which Redis searches from its start.
redis.call('HSET', stem .. 'leases', lease, pool .. '\n' .. node .. '\n' .. generation .. '\n' .. strategy
  .. '\n                                                                ')
