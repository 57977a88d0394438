-- Whether it is time to look for unused jobs, and since when somebody has watched without a gap.
-- KEYS: state. ARGV: the shortest time between two looks, the longest gap, both in microseconds.
local now = clock('')
local answer = begin(now)
local state = redis.call('HMGET', KEYS[1], 'looked', 'watched')
local looked, watched = tonumber(state[1] or ''), tonumber(state[2] or '')
if looked and looked <= now and now - looked < tonumber(ARGV[1]) then return answer end
-- A clock that went back is a gap, too.
if not looked or not watched or looked > now or now - looked > tonumber(ARGV[2]) then
  watched = now
end
redis.call('HSET', KEYS[1], 'looked', text(now), 'watched', text(watched))
answer[4] = text(watched)
return answer
