-- Writes jobs that are still as they were read; answers for each whether it was.
-- KEYS: state, lines, names, gone, kinds, past, told. ARGV: prefix of due keys, prefix of job keys,
-- the floor that was read, how many entries of history are kept; then for each job: its name, the
-- line that was read (empty: there was none), the new one, the last instant at which it may be
-- written, `new` for a key to begin anew, the number of other fields and those, the number of
-- changes of the index and those, `+` or `-` for the list of names, when a tombstone may be
-- forgotten or `-`, the number of entries for the history and those. What stays as it is, is empty.
local now, i = clock(''), 4
local due_keys = ARGV[1]
local floor = redis.call('HGET', KEYS[1], 'floor') or '0'
local answer, noted = {}, false

local function word()
  i = i + 1
  return ARGV[i]
end

local function words(count)
  local read = {}
  for k = 1, count do read[k] = word() end
  return read
end

while i < #ARGV do
  local name, expected, line, fresh, anew = word(), word(), word(), word(), word()
  local key = ARGV[2] .. name
  local set = words(2 * word())
  local index = words(2 * word())
  local listed, gone = word(), word()
  local history = words(3 * word())
  local read = redis.call('HGET', KEYS[2], name) or ''
  if read == line then
    -- This very write has arrived before.
    answer[#answer + 1] = 1
  elseif read ~= expected or (fresh ~= '' and now > tonumber(fresh))
    or (read == '' and floor ~= ARGV[3]) then
    answer[#answer + 1] = 0
  else
    -- What finds the job first: an entry too many does no harm, should the rest fail.
    for e = 1, #index, 2 do
      if index[e + 1] == '' then
        redis.call('ZREM', due_keys .. index[e], name)
      else
        if index[e] ~= '' then redis.call('SADD', KEYS[5], index[e]) end
        redis.call('ZADD', due_keys .. index[e], index[e + 1], name)
      end
    end
    if listed == '+' then redis.call('ZADD', KEYS[3], 0, name) end
    if listed == '-' then redis.call('ZREM', KEYS[3], name) end
    if gone == '-' then
      redis.call('ZREM', KEYS[4], name)
    elseif gone ~= '' then
      redis.call('ZADD', KEYS[4], gone, name)
    end
    for e = 1, #history, 3 do
      redis.call('ZADD', KEYS[6], history[e + 1], history[e])
      redis.call('HSET', KEYS[7], history[e], history[e + 2])
      noted = true
    end
    if anew ~= '' then redis.call('DEL', key) end
    if #set > 0 then redis.call('HSET', key, unpack(set)) end
    redis.call('HSET', KEYS[2], name, line)
    answer[#answer + 1] = 1
  end
end

if noted then
  local old = redis.call('ZRANGE', KEYS[6], 0, -ARGV[4] - 1)
  for _, entry in ipairs(old) do
    redis.call('HDEL', KEYS[7], entry)
    redis.call('ZREM', KEYS[6], entry)
  end
end
return answer
