-- Sets `i` and `j` to two different ranks below `n`, by the caller's random number of 52 bits; the lower one first.
local i, j = 0, 0
if n > 1 then
  local low = random % 67108864
  i, j = math.floor(low / 67108864 * n), math.floor((random - low) / 67108864 / 67108864 * (n - 1))
  if j < i then i, j = j, i else j = j + 1 end
end
