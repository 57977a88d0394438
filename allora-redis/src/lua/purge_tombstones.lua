-- Removes tombstones whose time is over; their fences stay below the lowest fence of the shard. KEYS:
-- state, hot, definitions, rare, cold, tombstones. ARGV: now in milliseconds.
local min_fence = redis.call('HGET', KEYS[1], 'min_fence') or '0'
local old = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', ARGV[1], 'LIMIT', 0, 1000)
if #old == 0 then return 0 end
for _, hot in ipairs(fields(KEYS[2], old)) do
  local written, fence = string.match(hot or '', '^1 %S+ (%d+) %S+ %S+ (%S+) ')
  if fence == '=' then fence = written end
  -- As text: the longer number is the greater one.
  if fence and (#fence > #min_fence or (#fence == #min_fence and fence > min_fence)) then
    min_fence = fence
  end
end
redis.call('HSET', KEYS[1], 'min_fence', min_fence)
for k = 2, 5 do call_with('HDEL', KEYS[k], old) end
return call_with('ZREM', KEYS[6], old)
