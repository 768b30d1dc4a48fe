-- pair returns two different ranks below n, by a random number of 52 bits; the lower one first.
local function pair(random, n)
  if n == 1 then return 0, 0 end
  local low = random % 67108864
  local i = math.floor(low / 67108864 * n)
  local j = math.floor((random - low) / 67108864 / 67108864 * (n - 1))
  if j < i then return j, i end
  return i, j + 1
end
