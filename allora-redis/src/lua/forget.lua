-- Forgets tombstones whose time has come; what they guarded, the floor guards now. KEYS: state,
-- gone, lines. ARGV: now in milliseconds, prefix of job keys.
local floor = redis.call('HGET', KEYS[1], 'floor') or '0'
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, 1000)
for _, name in ipairs(old) do
  local line = redis.call('HGET', KEYS[3], name) or ''
  local written, fence = string.match(line, '^1 %S+ (%d+) %S+ %S+ (%S+) ')
  if fence == '=' then fence = written end
  -- As text: the longer number is the greater one.
  if fence and (#fence > #floor or (#fence == #floor and fence > floor)) then floor = fence end
end
if #old > 0 then redis.call('HSET', KEYS[1], 'floor', floor) end
for _, name in ipairs(old) do
  redis.call('DEL', ARGV[2] .. name)
  redis.call('HDEL', KEYS[3], name)
  redis.call('ZREM', KEYS[2], name)
end
return #old
