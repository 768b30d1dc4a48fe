-- Takes a slot of the chosen node, and counts the nodes that were skipped for it. See include request.
if next(skipped) then
  local known = listed == ''
-- include count_skipped
end
if strategy == 'round-robin' then
  -- It expires, in s, so that a pool that is no longer used leaves nothing.
  redis.call('SET', pool_key(stem, pool, 'rotation'), position, 'EX', '3600')
end
redis.call('ZADD', stem .. 'node:slots:' .. node, whole(now + ttl), lease)
if leases + 1 >= max + 0 then
-- include settle
  local full = node_of(stem, node)
  settle(stem, full, purge(stem, full, now))
elseif class ~= '' then
  redis.call('ZADD', class_key(stem, class, 'free'), load_of(leases + 1, base, active, max, each, seen), node)
end
