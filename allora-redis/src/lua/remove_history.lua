-- Removes history entries. KEYS: history, history entries. ARGV: prefix of the histories of single jobs,
-- prefix of their failures; then the places of the entries: fence, blank, name.
local places = {}
for i = 3, #ARGV do
  local place = ARGV[i]
  local name = string.sub(place, string.find(place, ' ', 1, true) + 1)
  redis.call('ZREM', ARGV[1] .. name, place)
  redis.call('ZREM', ARGV[2] .. name, place)
  places[#places + 1] = place
end
call_with('HDEL', KEYS[2], places)
return call_with('ZREM', KEYS[1], places)
