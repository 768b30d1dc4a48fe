-- Splits `detail`, which has six texts as assign gets them, and begins the search of a node for it in `pool`. See include choose.
local own, places, services, excluded, required, listed =
  string.match(detail, '^([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2([^\2]*)\2$')
local want = { stem = stem, now = now, pool = pool, services = services, excluded = excluded, skipped = {}, turn = '' }
