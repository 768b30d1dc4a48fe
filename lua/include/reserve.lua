-- Takes a slot of `node`, which was chosen by `strategy` and has so many `leases`, for `lease` and `ttl` ms, and counts the nodes that
-- were skipped for it. See include choose.
if next(want.skipped) then
  local known = listed == ''
-- include count_skipped
end
if strategy == 'round-robin' then
  -- It expires, in s, so that a pool that is no longer used leaves nothing.
  redis.call('SET', pool_key(want.stem, want.pool, 'turn'), want.turn, 'EX', '3600')
end
redis.call('ZADD', want.stem .. 'node:slots:' .. node.id, whole(want.now + ttl), lease)
if leases + 1 >= node.max then
-- include settle
  local full = node_of(want.stem, node.id)
  settle(want.stem, full, purge(want.stem, full, want.now))
elseif node.class ~= '' then
  redis.call('ZADD', class_key(want.stem, node.class, 'free'), load_of(node, leases + 1), node.id)
end
