-- serve_waiters hands a node to the work that waits for one of its pools, and returns the waiters whose workflows the caller has to
-- signal. With no waiters it costs one read. open_grace and known: see include handover.
local function serve_waiters(stem, node, now, open_grace, known)
  if node.out ~= '' or redis.call('EXISTS', stem .. 'waiting') == 0 then return {} end
-- include handover
  serve_node(node, redis.call('HGET', stem .. 'classes', node.class) or '')
  return handed
end
