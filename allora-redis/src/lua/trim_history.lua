-- Removes old history entries of a job; replies in how many of its two sets there are more of them.
-- KEYS: history, history entries, the job's entries that are no failures, its failures. ARGV: of each of
-- these two, the number of entries to keep, and the lowest fence.
local most, left, places = 500, 0, {}
for k = 1, 2 do
  local key, number, from = KEYS[k + 2], tonumber(ARGV[2 * k - 1]), ARGV[2 * k]
  local beyond = math.max(
    redis.call('ZCARD', key) - number, redis.call('ZCOUNT', key, '-inf', '(' .. from))
  if beyond > most then left = left + 1 end
  if beyond > 0 then
    local old = redis.call('ZRANGE', key, 0, math.min(beyond, most) - 1)
    redis.call('ZREMRANGEBYRANK', key, 0, #old - 1)
    for _, place in ipairs(old) do
      -- The entry of a run that was taken for lost, and then succeeded, is in both sets.
      if k == 1 or not redis.call('ZSCORE', KEYS[3], place) then
        places[#places + 1] = place
      end
    end
  end
end
call_with('HDEL', KEYS[2], places)
call_with('ZREM', KEYS[1], places)
return left
