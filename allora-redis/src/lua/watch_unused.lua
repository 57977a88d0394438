-- Replies since when nodes have watched without a gap, if it is time to search for unused jobs.
-- KEYS: state. ARGV: the shortest time between two searches, the longest gap, both in microseconds.
local now = clock('')
local reply = begin(now)
local state = redis.call('HMGET', KEYS[1], 'searched_at', 'watched_since')
local searched_at, watched_since = tonumber(state[1] or ''), tonumber(state[2] or '')
if searched_at and searched_at <= now and now - searched_at < tonumber(ARGV[1]) then return reply end
-- A clock that went back is a gap, too.
if not searched_at or not watched_since or searched_at > now
  or now - searched_at > tonumber(ARGV[2]) then
  watched_since = now
end
redis.call('HSET', KEYS[1], 'searched_at', text(now), 'watched_since', text(watched_since))
reply[4] = text(watched_since)
return reply
