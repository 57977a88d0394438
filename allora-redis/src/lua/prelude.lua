-- Shared by the scripts below. Numbers of more than 14 digits are printed with '%.0f': Lua's own
-- conversion would cut them.
local function text(number) return string.format('%.0f', number) end

-- The server's time in microseconds, or the one that was given.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The hot record and all fields of a job, or the reason why its key does not have them. Any other
-- error, as that of a key that is moving to another node, is that of the whole script.
local function job(hot, key)
  local read = redis.pcall('HMGET', key, 'cold', 'kind', 'definition', 'data')
  if read.err then
    if not string.find(read.err, 'WRONGTYPE', 1, true) then error(read.err, 0) end
    return { hot, read.err }
  end
  return { hot, unpack(read, 1, 4) }
end

-- The beginning of every reply: now, the id of the shard, its lowest fence.
local function begin(now)
  local state = redis.call('HMGET', KEYS[1], 'store_id', 'min_fence')
  return { text(now), state[1], state[2] }
end
