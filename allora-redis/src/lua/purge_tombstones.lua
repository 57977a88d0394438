-- Removes tombstones whose time is over; their fences stay below the lowest fence of the shard. KEYS:
-- state, tombstones, hot. ARGV: now in milliseconds, prefix of job keys.
local min_fence = redis.call('HGET', KEYS[1], 'min_fence') or '0'
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, 1000)
for _, name in ipairs(old) do
  local hot = redis.call('HGET', KEYS[3], name) or ''
  local written, fence = string.match(hot, '^1 %S+ (%d+) %S+ %S+ (%S+) ')
  if fence == '=' then fence = written end
  -- As text: the longer number is the greater one.
  if fence and (#fence > #min_fence or (#fence == #min_fence and fence > min_fence)) then
    min_fence = fence
  end
end
if #old > 0 then redis.call('HSET', KEYS[1], 'min_fence', min_fence) end
for _, name in ipairs(old) do
  redis.call('DEL', ARGV[2] .. name)
  redis.call('HDEL', KEYS[3], name)
  redis.call('ZREM', KEYS[2], name)
end
return #old
