-- Comparing nodes by load.

-- score_of returns a score as a whole number; nil for none. The embedded server writes large ones with an exponent, which its
-- tonumber does not read.
local function score_of(text)
  if not text then return nil end
  local score = tonumber(text)
  if score then return score end
  local digits, exponent = string.match(text, '^(.*)e%+(%d+)$')
  return math.floor(tonumber(digits) * 10 ^ tonumber(exponent) + 0.5)
end

-- before reports whether a node with this score comes before another one.
local function before(score, id, other_score, other_id)
  return score < other_score or score == other_score and id < other_id
end
