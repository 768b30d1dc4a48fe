-- The usual decision, which nearly all are: nothing special is requested, and the first candidate can take the job and has
-- capacity for more. It decides as include choose would; a test compares them. It uses no functions and no tables, which
-- would cost as much as everything else that Redis does here. Needs stem, now, and named: a node to try first, or false.
-- Sets id, generation and strategy of the node whose slot was taken; id is nil when include choose has to decide.

local LARGE = 50 -- nodes above which a pool without a strategy compares two of them instead of all

local id, generation, pool, strategy = nil, nil, ARGV[4], ARGV[5]
if ARGV[7] == '' then
  local free, ring, first = stem .. 'pool:' .. pool .. ':free', nil, named
  if named then
    strategy = ''
  elseif strategy == 'round-robin' then
    ring = stem .. 'pool:' .. pool .. ':ring'
    first = redis.call('ZRANGE', ring, '0', '0')[1]
  else
    local rank = '0'
    if strategy == '' or strategy == 'power-of-two' then
      local n = redis.call('ZCARD', free)
      strategy = (strategy ~= '' or n > LARGE) and 'power-of-two' or 'load-balanced'
      if strategy == 'power-of-two' then
        local random = tonumber(ARGV[6])
        local low = random % 67108864
        rank = string.format('%d', math.min(low / 67108864 * n, (random - low) / 67108864 / 67108864 * (n - 1)))
      end
    end
    first = redis.call('ZRANGE', free, rank, rank)[1]
  end
  local brief = first and redis.call('HGET', stem .. 'node:runtime:' .. first, 'brief')
  if brief then
    local base, active, max, out, pools
    generation, base, active, max, out, pools = string.match(brief, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
    local slots = stem .. 'node:slots:' .. first
    local leases = 1 + redis.call('ZCOUNT', slots, string.format('%d', now + 1), '+inf')
    local there = not named or string.find('\n' .. pools .. '\n', '\n' .. pool .. '\n', 1, true)
    if out == '' and there and leases < tonumber(max) then
      id = first
      if ring then
        local turn = redis.call('HINCRBY', stem .. 'pool:' .. pool .. ':state', 'turn', '1')
        redis.call('ZADD', ring, string.format('%d', turn), id)
      end
      redis.call('ZADD', slots, string.format('%d', now + ARGV[3]), ARGV[2])
      local load = string.format('%d', base + math.max(tonumber(active), leases) * 1000 + math.floor(leases * 100000 / max))
      for each in string.gmatch(pools, '[^\n]+') do redis.call('ZADD', stem .. 'pool:' .. each .. ':free', load, id) end
    end
  end
end
