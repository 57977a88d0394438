-- Shared by the scripts below. Numbers of more than 14 digits are printed with '%.0f': Lua's own
-- conversion would cut them.
local function text(number) return string.format('%.0f', number) end

-- The server's time in microseconds, or the one that was given.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The number of arguments of one command: Lua's stack is limited. Even, because of pairs.
local MOST = 4000

-- Calls a command with many arguments; returns the sum of its replies.
local function call_with(command, key, list)
  local sum = 0
  for i = 1, #list, MOST do
    sum = sum + redis.call(command, key, unpack(list, i, math.min(i + MOST - 1, #list)))
  end
  return sum
end

-- The fields of a hash.
local function fields(key, names)
  if #names <= MOST then return redis.call('HMGET', key, unpack(names)) end
  local all = {}
  for i = 1, #names, MOST do
    local part = redis.call('HMGET', key, unpack(names, i, math.min(i + MOST - 1, #names)))
    for k = 1, #part do all[i + k - 1] = part[k] end
  end
  return all
end

-- The beginning of every reply: now, the id of the shard, its lowest fence.
local function begin(now)
  local state = redis.call('HMGET', KEYS[1], 'store_id', 'min_fence')
  return { text(now), state[1], state[2] }
end
