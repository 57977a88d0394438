-- Moves jobs whose line is the one that the caller knows, and reads the others. What a line becomes
-- was worked out by the caller, but for the instant that it begins with.
-- KEYS: state, lines. ARGV: now, from when on and until when that holds (empty: always), token,
-- prefix of job keys, prefix of due keys, the number of jobs; their names; the lines that are known
-- (empty: none); how the new ones go on; then for each change of the index: which job, its kind,
-- when it wants attention (empty: never), how long from now on its run lasts (empty: it ended).
local now, count = clock(ARGV[1]), tonumber(ARGV[7])
local answer = begin(now)
local lines = redis.call('HMGET', KEYS[2], unpack(ARGV, 8, 7 + count))
local holds = (ARGV[2] == '' or now >= tonumber(ARGV[2]))
  and (ARGV[3] == '' or now <= tonumber(ARGV[3]))
local head, set = '1 ' .. ARGV[4] .. ' ' .. text(now) .. ' ', {}
for i, line in ipairs(lines) do
  local name = ARGV[7 + i]
  if holds and line == ARGV[7 + count + i] and line ~= '' then
    set[#set + 1] = name
    set[#set + 1] = head .. ARGV[7 + 2 * count + i]
    answer[i + 3] = 1
  else
    answer[i + 3] = job(line, ARGV[5] .. name)
  end
end
-- The index first: an entry too many does no harm, should the rest fail.
for e = 8 + 3 * count, #ARGV, 4 do
  local i = tonumber(ARGV[e])
  if answer[i + 3] == 1 then
    local due, notice = ARGV[6] .. ARGV[e + 1], tonumber(ARGV[e + 2])
    if ARGV[e + 3] ~= '' then
      notice = math.min(notice, math.floor((now + tonumber(ARGV[e + 3])) / 1000))
    end
    if notice then
      redis.call('ZADD', due, text(notice), ARGV[7 + i])
    else
      redis.call('ZREM', due, ARGV[7 + i])
    end
  end
end
if #set > 0 then redis.call('HSET', KEYS[2], unpack(set)) end
return answer
