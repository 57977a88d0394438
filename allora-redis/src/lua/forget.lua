-- Forgets tombstones whose time has come; what they guarded, the floor guards now. KEYS: state,
-- gone. ARGV: now in milliseconds, prefix of job keys.
local floor = redis.call('HGET', KEYS[1], 'floor') or '0'
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, 1000)
for _, name in ipairs(old) do
  local hot = redis.pcall('HGET', ARGV[2] .. name, 'hot')
  local fence = type(hot) == 'string' and string.match(hot, '^1 %S+ %S+ %S+ (%d+) ')
  -- As text: the longer number is the greater one.
  if fence and (#fence > #floor or (#fence == #floor and fence > floor)) then floor = fence end
end
if #old > 0 then redis.call('HSET', KEYS[1], 'floor', floor) end
for _, name in ipairs(old) do
  redis.call('DEL', ARGV[2] .. name)
  redis.call('ZREM', KEYS[2], name)
end
return #old
