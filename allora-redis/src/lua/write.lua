-- Writes the jobs that are still as they were read; replies for each whether it was written.
-- KEYS: state, hot, definitions, rare, cold, kinds, names, tombstones, history, history entries, flags,
-- changes by clients, their entries.
-- ARGV: prefix of due keys, prefix of the failures of single jobs, prefix of their other entries, prefix
-- of the names with a flag, the number of jobs; their names; then for each job: the lowest
-- fence that was read, the hot record that was read (empty: there was none), the new one, the last
-- time at which it may be written, the number of other parts and those (the number of the key and the
-- part; empty: none),
-- the number of index changes and those, `+` or `-` for the list of names, when a tombstone may be
-- removed or `-`, the number of history entries and changes and those: place, fence, text, and a word:
-- `1` of a failure, `c` of a change; the number of flags that change and those: the flag, and `+` or `-`.
-- An empty word changes nothing.
local now, count = clock(''), tonumber(ARGV[5])
local i = 5 + count
local min_fence = redis.call('HGET', KEYS[1], 'min_fence') or '0'
local stored = redis.call('HMGET', KEYS[2], unpack(ARGV, 6, 5 + count))
local reply = {}

local function word()
  i = i + 1
  return ARGV[i]
end

local function words(number)
  local read = {}
  for k = 1, number do read[k] = word() end
  return read
end

-- The arguments of the commands, by their keys: each command is called once.
local lists = {}

local function add(command, key, first, second)
  local list = lists[command .. key]
  if not list then
    list = { command, key, {} }
    lists[command .. key], lists[#lists + 1] = list, list
  end
  list = list[3]
  list[#list + 1] = first
  if second then list[#list + 1] = second end
end

local hot = {}
for k = 1, count do
  local name = ARGV[5 + k]
  local fence, expected, new, not_after = word(), word(), word(), word()
  local parts = words(2 * word())
  local index = words(2 * word())
  local listed, tombstone = word(), word()
  local history = words(4 * word())
  local flags = words(2 * word())
  local read = stored[k] or ''
  if read == new then
    -- An earlier copy of this write has arrived.
    reply[k] = 1
  elseif read ~= expected or (not_after ~= '' and now > tonumber(not_after))
    or (read == '' and min_fence ~= fence) then
    reply[k] = 0
  else
    reply[k] = 1
    for e = 1, #index, 2 do
      local due = ARGV[1] .. index[e]
      if index[e + 1] == '' then
        add('ZREM', due, name)
      else
        if index[e] ~= '' then add('SADD', KEYS[6], index[e]) end
        add('ZADD', due, index[e + 1], name)
      end
    end
    if listed == '+' then add('ZADD', KEYS[7], 0, name) end
    if listed == '-' then add('ZREM', KEYS[7], name) end
    if tombstone == '-' then
      add('ZREM', KEYS[8], name)
    elseif tombstone ~= '' then
      add('ZADD', KEYS[8], tombstone, name)
    end
    for e = 1, #history, 4 do
      local all, of_job, entries = KEYS[9], history[e + 3] ~= '' and ARGV[2] or ARGV[3], KEYS[10]
      if history[e + 3] == 'c' then
        all, of_job, entries = KEYS[12], KEYS[12] .. ':', KEYS[13]
      end
      add('ZADD', all, history[e + 1], history[e])
      add('ZADD', of_job .. name, history[e + 1], history[e])
      add('HSET', entries, history[e], history[e + 2])
    end
    for e = 1, #flags, 2 do
      local key = ARGV[4] .. flags[e]
      if flags[e + 1] == '+' then
        add('SADD', KEYS[11], flags[e])
        add('ZADD', key, 0, name)
      else
        add('ZREM', key, name)
      end
    end
    for e = 1, #parts, 2 do
      local key = KEYS[tonumber(parts[e])]
      if parts[e + 1] == '' then
        add('HDEL', key, name)
      else
        add('HSET', key, name, parts[e + 1])
      end
    end
    hot[#hot + 1] = name
    hot[#hot + 1] = new
  end
end
-- The index and the parts first: without a new hot record they do no harm if the rest fails.
for _, list in ipairs(lists) do call_with(list[1], list[2], list[3]) end
if #hot > 0 then call_with('HSET', KEYS[2], hot) end
return reply
