-- Writes the jobs that are still as they were read; replies for each whether it was written.
-- KEYS: state, hot, names, tombstones, kinds, history, history entries. ARGV: prefix of due keys,
-- prefix of job keys, the number of history entries to keep, prefix of the histories of single jobs;
-- then for each job: its name, the lowest
-- fence that was read, the hot record that was read (empty: there was none), the new one, the last
-- time at which it may be written, `new` to replace the key, the number of other fields and those,
-- the number of index changes and those, `+` or `-` for the list of names, when a tombstone may be
-- removed or `-`, the number of history entries and those. An empty word changes nothing.
local now, i = clock(''), 4
local due_keys = ARGV[1]
local min_fence = redis.call('HGET', KEYS[1], 'min_fence') or '0'
local reply, recorded = {}, 0

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
  local name, fence, expected, hot, not_after, anew = word(), word(), word(), word(), word(), word()
  local key = ARGV[2] .. name
  local set = words(2 * word())
  local index = words(2 * word())
  local listed, tombstone = word(), word()
  local history = words(3 * word())
  local read = redis.call('HGET', KEYS[2], name) or ''
  if read == hot then
    -- An earlier copy of this write has arrived.
    reply[#reply + 1] = 1
  elseif read ~= expected or (not_after ~= '' and now > tonumber(not_after))
    or (read == '' and min_fence ~= fence) then
    reply[#reply + 1] = 0
  else
    -- The index first: an entry too many does no harm if the rest fails.
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
    if tombstone == '-' then
      redis.call('ZREM', KEYS[4], name)
    elseif tombstone ~= '' then
      redis.call('ZADD', KEYS[4], tombstone, name)
    end
    for e = 1, #history, 3 do
      redis.call('ZADD', KEYS[6], history[e + 1], history[e])
      redis.call('ZADD', ARGV[4] .. name, history[e + 1], history[e])
      redis.call('HSET', KEYS[7], history[e], history[e + 2])
      recorded = recorded + 1
    end
    if anew ~= '' then redis.call('DEL', key) end
    if #set > 0 then redis.call('HSET', key, unpack(set)) end
    redis.call('HSET', KEYS[2], name, hot)
    reply[#reply + 1] = 1
  end
end

-- A lowered limit leaves many entries to remove: each call removes some more than it adds.
if recorded > 0 then
  local excess = redis.call('ZCARD', KEYS[6]) - ARGV[3]
  if excess > 0 then
    local most = math.min(excess, 2 * recorded + 100)
    for _, entry in ipairs(redis.call('ZRANGE', KEYS[6], 0, most - 1)) do
      redis.call('HDEL', KEYS[7], entry)
      redis.call('ZREM', KEYS[6], entry)
      redis.call('ZREM', ARGV[4] .. string.sub(entry, string.find(entry, ' ', 1, true) + 1), entry)
    end
  end
end
return reply
