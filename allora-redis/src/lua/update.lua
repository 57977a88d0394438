-- Replaces the hot records that the caller has cached, and reads the other jobs. The new hot records
-- were computed by the caller, except for the time with which each begins.
-- KEYS: state, hot, kinds. ARGV: now, the first and the last time at which the updates hold (empty: no
-- limit), version stamp, prefix of job keys, prefix of due keys, the number of jobs; their names;
-- the cached hot records (empty: none); the rests of the new ones; then for each change of the index:
-- the number of the job, its kind, when it wants attention (empty: never), the length of its lease
-- from now (empty: it ended).
local now, count = clock(ARGV[1]), tonumber(ARGV[7])
local reply = begin(now)
local hot = redis.call('HMGET', KEYS[2], unpack(ARGV, 8, 7 + count))
local holds = (ARGV[2] == '' or now >= tonumber(ARGV[2]))
  and (ARGV[3] == '' or now <= tonumber(ARGV[3]))
local prefix, set = '1 ' .. ARGV[4] .. ' ' .. text(now) .. ' ', {}
for i, record in ipairs(hot) do
  local name = ARGV[7 + i]
  if holds and record == ARGV[7 + count + i] and record ~= '' then
    set[#set + 1] = name
    set[#set + 1] = prefix .. ARGV[7 + 2 * count + i]
    reply[i + 3] = 1
  else
    reply[i + 3] = job(record, ARGV[5] .. name)
  end
end
-- The index first: an entry too many does no harm if the rest fails.
for e = 8 + 3 * count, #ARGV, 4 do
  local i = tonumber(ARGV[e])
  if reply[i + 3] == 1 then
    local due, index_at = ARGV[6] .. ARGV[e + 1], tonumber(ARGV[e + 2])
    if ARGV[e + 3] ~= '' then
      index_at = math.min(index_at, math.floor((now + tonumber(ARGV[e + 3])) / 1000))
    end
    if index_at then
      -- Without another job in the index, its kind may have been forgotten.
      if redis.call('ZADD', due, text(index_at), ARGV[7 + i]) == 1 and ARGV[e + 1] ~= '' then
        redis.call('SADD', KEYS[3], ARGV[e + 1])
      end
    else
      redis.call('ZREM', due, ARGV[7 + i])
    end
  end
end
if #set > 0 then redis.call('HSET', KEYS[2], unpack(set)) end
return reply
