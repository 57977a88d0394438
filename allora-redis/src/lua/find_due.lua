-- Finds the jobs that want attention, the earliest first. KEYS: state, hot, due keys. ARGV: until, the
-- number of jobs of each kind to leave out, limit, prefix of job keys.
local reply = begin(clock(''))
local soon, limit = tonumber(ARGV[1]), tonumber(ARGV[3])
local all = {}
for k = 3, #KEYS do
  local read =
    redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', '+inf', 'WITHSCORES', 'LIMIT', ARGV[2], limit + 1)
  for e = 1, #read, 2 do all[#all + 1] = { tonumber(read[e + 1]), read[e], k - 3 } end
end
table.sort(all, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
for e, entry in ipairs(all) do
  if e > limit or entry[1] >= soon then
    reply[#reply + 1] = text(entry[1])
    break
  end
  local hot = redis.call('HGET', KEYS[2], entry[2])
  reply[#reply + 1] = { text(entry[1]), entry[2], entry[3], job(hot, ARGV[4] .. entry[2]) }
end
return reply
