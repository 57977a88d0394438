-- Finds entries by their numbers from the newest; replies for each with its place, or an empty word.
-- KEYS: history. ARGV: prefix of the histories of single jobs; then names and numbers from 0.
local found = {}
for i = 2, #ARGV, 2 do
  local at = redis.call('ZREVRANGE', ARGV[1] .. ARGV[i], ARGV[i + 1], ARGV[i + 1])
  found[#found + 1] = at[1] or ''
end
return found
