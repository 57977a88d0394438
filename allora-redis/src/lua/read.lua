-- Reads jobs. KEYS: state, hot. ARGV: prefix of job keys, then names.
local reply = begin(clock(''))
if #ARGV > 1 then
  local hot = redis.call('HMGET', KEYS[2], unpack(ARGV, 2))
  for i, record in ipairs(hot) do reply[i + 3] = job(record, ARGV[1] .. ARGV[i + 1]) end
end
return reply
