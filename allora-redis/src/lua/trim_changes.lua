-- Removes old changes by clients; replies how many more are to be removed. KEYS: changes, their entries.
-- ARGV: the number of changes to keep, and the lowest fence.
local most, number, from = 500, tonumber(ARGV[1]), ARGV[2]
local beyond = math.max(
  redis.call('ZCARD', KEYS[1]) - number, redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. from))
if beyond <= 0 then return 0 end
local old = redis.call('ZRANGE', KEYS[1], 0, math.min(beyond, most) - 1)
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #old - 1)
for _, place in ipairs(old) do
  -- The place is the fence, a blank, and the name of the job.
  local name = string.sub(place, string.find(place, ' ', 1, true) + 1)
  redis.call('ZREM', KEYS[1] .. ':' .. name, place)
end
call_with('HDEL', KEYS[2], old)
return beyond - #old
