-- Reads jobs. KEYS: state, lines. ARGV: prefix of job keys, then names.
local answer = begin(clock(''))
if #ARGV > 1 then
  local lines = redis.call('HMGET', KEYS[2], unpack(ARGV, 2))
  for i, line in ipairs(lines) do answer[i + 3] = job(line, ARGV[1] .. ARGV[i + 1]) end
end
return answer
