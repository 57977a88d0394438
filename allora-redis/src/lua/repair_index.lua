-- Corrects an entry of the due index that differs from its job, if the job is as it was read. KEYS:
-- due, hot. ARGV: name, the hot record that was read (empty: none), the right score (empty: none).
if (redis.call('HGET', KEYS[2], ARGV[1]) or '') == ARGV[2] then
  if ARGV[3] == '' then
    redis.call('ZREM', KEYS[1], ARGV[1])
  else
    redis.call('ZADD', KEYS[1], 'XX', ARGV[3], ARGV[1])
  end
end
return 1
